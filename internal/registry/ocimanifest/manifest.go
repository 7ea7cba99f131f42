// SPDX-License-Identifier: Apache-2.0

// Package ocimanifest parses OCI and Docker image manifests, indexes and configs from outside, a registry or removable
// media, and rejects ambiguous ones. Callers limit the size of its input; its results can be shown to people.
//
// Why Bounds counts before anything decodes: 4 MiB of `{}` are 1.4 million descriptors, 560 MB when decoded, and
// containerd's client in the daemon decodes the same documents again.
package ocimanifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Document is a manifest or an index: only an index has Manifests, only a manifest has Config and Layers.
type Document struct {
	SchemaVersion int                  `json:"schemaVersion"`
	MediaType     string               `json:"mediaType"`
	Manifests     []ocispec.Descriptor `json:"manifests"`
	Config        ocispec.Descriptor   `json:"config"`
	Layers        []ocispec.Descriptor `json:"layers"`
}

// IsIndex reports whether the document is an index.
func (d Document) IsIndex() bool { return images.IsIndexType(d.MediaType) }

// Size returns the compressed size of an image in bytes: config and layers.
func (d Document) Size() (int64, error) {
	total := d.Config.Size
	for _, layer := range d.Layers {
		if total > math.MaxInt64-layer.Size {
			return 0, errors.New("manifest: sizes overflow")
		}
		total += layer.Size
	}
	return total, nil
}

// Parse parses a manifest or an index of its descriptor's kind. It rejects a document that could be read as either, or
// as another kind: a signature could cover one reading, and a client run the other (CVE-2021-41190).
func Parse(kind string, body []byte) (Document, error) {
	if !images.IsManifestType(kind) && !images.IsIndexType(kind) {
		return Document{}, fmt.Errorf("manifest: media type %q: not an image", outside.Text(kind))
	}
	if err := CheckBounds(body); err != nil {
		return Document{}, fmt.Errorf("manifest: %w", err)
	}
	if err := checkKeys(images.IsIndexType(kind), body); err != nil {
		return Document{}, err
	}
	var d Document
	if err := json.Unmarshal(body, &d); err != nil {
		return Document{}, outside.Error(fmt.Errorf("manifest: %w", err)) // it may quote a number of any length
	}
	if d.SchemaVersion != 2 {
		return Document{}, fmt.Errorf("manifest: schema version %d, not 2", d.SchemaVersion)
	}
	if d.MediaType != "" && d.MediaType != kind {
		return Document{}, fmt.Errorf("manifest: media type %q came as %q", outside.Text(d.MediaType), kind)
	}
	d.MediaType = kind
	return d, d.checkDescriptors()
}

// CheckBlobs checks the config and layers of an image's manifest. It returns an error for more layers than a node can
// mount, and for an image among them, which containerd would fetch and decode as well, with all its contents.
func CheckBlobs(blobs []ocispec.Descriptor) error {
	if layers := len(blobs) - 1; layers > MaxLayers {
		return fmt.Errorf("%w layers: %d, at most %d", ErrTooMany, layers, MaxLayers)
	}
	for _, blob := range blobs {
		if images.IsManifestType(blob.MediaType) || images.IsIndexType(blob.MediaType) {
			return fmt.Errorf("blob of media type %q: an image within an image", blob.MediaType)
		}
	}
	return nil
}

// checkKeys rejects keys of the other kind. Go matches keys case-insensitively, so they are compared in the same way.
func checkKeys(index bool, body []byte) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(body, &keys); err != nil {
		return outside.Error(fmt.Errorf("manifest: %w", err))
	}
	foreign := []string{"manifests", "fsLayers"}
	if index {
		foreign = []string{"config", "layers", "fsLayers"}
	}
	for key := range keys {
		same := func(name string) bool { return strings.EqualFold(name, key) }
		if slices.ContainsFunc(foreign, same) {
			return fmt.Errorf("manifest: ambiguous: has %q", outside.Text(key))
		}
	}
	return nil
}

// checkDescriptors checks digests before they become paths: a valid digest has a known algorithm and the right number
// of hexadecimal digits.
func (d Document) checkDescriptors() error {
	all := slices.Concat(d.Manifests, d.Layers)
	if !d.IsIndex() {
		all = append(all, d.Config)
		// An artifact without a config is not an image, and its layers are not mounted. CheckBlobs checks them again
		// before a pull.
		if err := CheckBlobs(all); err != nil && d.Config.MediaType != ocispec.MediaTypeEmptyJSON {
			return fmt.Errorf("manifest: %w", err)
		}
	}
	for _, each := range all {
		if err := each.Digest.Validate(); err != nil {
			return fmt.Errorf("manifest: digest %q: %w", outside.Text(each.Digest.String()), err)
		}
		if each.Size < 0 {
			return fmt.Errorf("manifest: %s: size %d", each.Digest, each.Size)
		}
	}
	return nil
}
