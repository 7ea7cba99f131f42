// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// document is a manifest or an index: Manifests is set in an index only.
type document struct {
	SchemaVersion int                  `json:"schemaVersion"`
	MediaType     string               `json:"mediaType"`
	Manifests     []ocispec.Descriptor `json:"manifests"`
	Config        ocispec.Descriptor   `json:"config"`
	Layers        []ocispec.Descriptor `json:"layers"`
}

func (d document) isIndex() bool { return images.IsIndexType(d.MediaType) }

// size is what an image takes compressed: config and layers.
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

// parseManifest reads a manifest or an index of the kind that its descriptor
// names. What could be read as either, or as another kind, is refused: a
// signature over it would cover one reading, and a client run the other
// (CVE-2021-41190).
func parseManifest(kind string, body []byte) (document, error) {
	if !images.IsManifestType(kind) && !images.IsIndexType(kind) {
		return document{}, fmt.Errorf("manifest: media type %q: not an image", clip(kind))
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

// checkDescriptors guards what becomes a path: a valid digest is an algorithm
// that is known and as many hexadecimal digits as it has.
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

// errBlob is a blob that the layout names and does not have: not the
// fs.ErrNotExist of the place, and no "not found" of a source.
var errBlob = errors.New("blob is missing: the layout is not complete")

// blob opens a blob of a layout if it has the size that its descriptor says.
func (l *Layout) blob(at home, desc ocispec.Descriptor) (io.ReadCloser, error) {
	d := desc.Digest
	if err := d.Validate(); err != nil {
		return nil, fmt.Errorf("digest %q: %w", clip(d.String()), err)
	}
	file, size, err := l.place.open(path.Join(at.dir, blobsDir, d.Algorithm().String(), d.Encoded()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", d, errBlob)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d, err)
	}
	if size != desc.Size {
		file.Close()
		return nil, fmt.Errorf("%s: blob has %d bytes, not %d", d, size, desc.Size)
	}
	return file, nil
}

// document reads a small blob and compares it with its digest.
func (l *Layout) document(at home, desc ocispec.Descriptor, limit int64) ([]byte, error) {
	if desc.Size > limit {
		return nil, fmt.Errorf("%s: %w: %d bytes", desc.Digest, errTooLarge, desc.Size)
	}
	file, err := l.blob(at, desc)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := readAtMost(file, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", desc.Digest, plain(err))
	}
	if err := verify(desc.Digest, desc.Digest.Algorithm().FromBytes(data)); err != nil {
		return nil, err
	}
	return data, nil
}

// manifest reads a manifest or index.
func (l *Layout) manifest(at home, desc ocispec.Descriptor) (document, error) {
	data, err := l.document(at, desc, maxManifest)
	if err != nil {
		return document{}, err
	}
	return parseManifest(desc.MediaType, data)
}

func verify(want, got digest.Digest) error {
	if got != want {
		return fmt.Errorf("blob %s: content has digest %s", want, got)
	}
	return nil
}
