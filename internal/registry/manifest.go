// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"mime"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// acceptManifests are the kinds of manifest that containerd runs images from,
// in its order. A registry that keeps OCI manifests answers 404 to a request
// that does not name their types.
var acceptManifests = strings.Join([]string{
	images.MediaTypeDockerSchema2Manifest,
	images.MediaTypeDockerSchema2ManifestList,
	ocispec.MediaTypeImageManifest,
	ocispec.MediaTypeImageIndex,
}, ", ")

// document is a manifest or an index: Manifests is set in an index only.
type document struct {
	SchemaVersion int                  `json:"schemaVersion"`
	MediaType     string               `json:"mediaType"`
	Manifests     []ocispec.Descriptor `json:"manifests"`
	Config        ocispec.Descriptor   `json:"config"`
	Layers        []ocispec.Descriptor `json:"layers"`
}

func (d document) isIndex() bool { return images.IsIndexType(d.MediaType) }

// size is what an image takes on the wire: config and layers.
func (d document) size() (int64, error) {
	total := d.Config.Size
	for _, layer := range d.Layers {
		if total > math.MaxInt64-layer.Size {
			return 0, errors.New("manifest: sizes overflow")
		}
		total += layer.Size
	}
	return total, nil
}

// parseManifest reads a manifest or an index. What could be read as either, or
// as something else than the Content-Type says, is refused: a signature over it
// would cover one reading, and a client run the other (CVE-2021-41190).
func parseManifest(contentType string, body []byte) (document, error) {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return document{}, fmt.Errorf("manifest: content-type %q: %w", clip(contentType), err)
	}
	if !images.IsManifestType(kind) && !images.IsIndexType(kind) {
		return document{}, fmt.Errorf("manifest: content-type %q: not an image", clip(kind))
	}
	if err := checkKeys(images.IsIndexType(kind), body); err != nil {
		return document{}, err
	}
	var d document
	if err := json.Unmarshal(body, &d); err != nil {
		return document{}, fmt.Errorf("manifest: %w", err)
	}
	if d.SchemaVersion != 2 {
		return document{}, fmt.Errorf("manifest: schema version %d, not 2", d.SchemaVersion)
	}
	if d.MediaType != "" && d.MediaType != kind {
		return document{}, fmt.Errorf("manifest: media type %q came as %q", clip(d.MediaType), kind)
	}
	d.MediaType = kind
	return d, d.checkDescriptors()
}

// checkKeys refuses keys of the other kind. Go matches keys of any case, so
// they are compared in the same way.
func checkKeys(index bool, body []byte) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(body, &keys); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	foreign := []string{"manifests", "fsLayers"}
	if index {
		foreign = []string{"config", "layers", "fsLayers"}
	}
	for key := range keys {
		same := func(name string) bool { return strings.EqualFold(name, key) }
		if slices.ContainsFunc(foreign, same) {
			return fmt.Errorf("manifest: ambiguous: has %q", clip(key))
		}
	}
	return nil
}

func (d document) checkDescriptors() error {
	all := slices.Concat(d.Manifests, d.Layers)
	if !d.isIndex() {
		all = append(all, d.Config)
	}
	for _, each := range all {
		if err := each.Digest.Validate(); err != nil {
			return fmt.Errorf("manifest: digest %q: %w", clip(each.Digest.String()), err)
		}
		if each.Size < 0 {
			return fmt.Errorf("manifest: %s: size %d", each.Digest, each.Size)
		}
	}
	return nil
}

// clip bounds a text from outside for an error.
func clip(text string) string {
	if len(text) > maxVersion {
		return text[:maxVersion] + "..."
	}
	return text
}
