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
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
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

// MaxIndexes limits the nested indexes above one image. No publisher has more than two: an index of releases, and one
// of platforms.
const MaxIndexes = 4

// ErrPlatform: an image for another platform, or an index without an image for the requested one.
var ErrPlatform = errors.New("not for this platform")

// NotImage is the error for a manifest of something else, such as a Helm chart. It has the media type of the config.
type NotImage string

func (n NotImage) Error() string { return n.Of(errors.New("not an image")).Error() }

// Of returns the error as one of the caller's kinds.
func (n NotImage) Of(kind error) error {
	return fmt.Errorf("manifest: config %q: %w", outside.Text(string(n)), kind)
}

// Content reads the parts of an image. Results must have the size and the digest of the descriptor; its errors are
// returned unchanged.
type Content struct {
	// Document reads a manifest or an index of the descriptor's kind.
	Document func(ocispec.Descriptor) (Document, error)
	// Config reads an image config.
	Config func(ocispec.Descriptor) ([]byte, error)
}

// Describe describes a manifest, or the one in an index for a platform: the one that containerd would pull
// (docs/dev/platforms.md). It returns ErrPlatform if that does not run on the platform.
func (c Content) Describe(top ocispec.Descriptor, platform platforms.MatchComparer) (Build, error) {
	desc := top
	for range MaxIndexes + 1 {
		doc, err := c.Document(desc)
		switch {
		case err != nil:
			return Build{}, err
		case doc.IsIndex():
			var ok bool
			if desc, ok = doc.pick(platform); !ok {
				return Build{}, ErrPlatform
			}
			continue
		}
		build, err := c.image(doc, platform)
		if err == nil && desc.Digest != top.Digest {
			build.Manifest = desc.Digest
		}
		return build, err
	}
	return Build{}, fmt.Errorf("index %s: more than %d nested indexes", top.Digest, MaxIndexes)
}

// image reads the config of a manifest and checks its platform.
func (c Content) image(doc Document, platform platforms.MatchComparer) (Build, error) {
	desc, err := doc.ImageConfig()
	if err != nil {
		return Build{}, err
	}
	config, err := c.Config(desc)
	if err != nil {
		return Build{}, err
	}
	build, is, err := doc.Build(config)
	switch {
	case err != nil:
		return Build{}, err
	case !platform.Match(is):
		return Build{}, ErrPlatform
	}
	return build, nil
}

// pick chooses from an index as containerd does (images.Manifest, and images.LimitManifests with 1): the best match, of
// equal ones the first; without a match, the first entry without a platform. It tries no second one.
func (d Document) pick(platform platforms.MatchComparer) (best ocispec.Descriptor, found bool) {
	for _, m := range d.Manifests {
		if m.Platform != nil && !platform.Match(*m.Platform) {
			continue
		}
		if !found || before(m.Platform, best.Platform, platform) {
			best, found = m, true
		}
	}
	return best, found
}

// before reports whether a platform of an index comes before another one; nil, a missing platform, comes last.
func before(a, b *ocispec.Platform, platform platforms.MatchComparer) bool {
	if a == nil || b == nil {
		return a != nil
	}
	return platform.Less(*a, *b)
}

// Limits of the data that is read and shown.
const (
	MaxConfig        = 4 << 20 // bytes of an image config, the same as for a manifest
	MaxSignatureBlob = 1 << 20 // bytes of a part of a signature; bundles are the largest
	MaxVersion       = 128     // bytes of a version label, the length of a tag
	maxOrigin        = 512     // bytes of the label of origin: a repository may have 255, a tag 128
)

// originLabel is the label with the reference under which SUSE's images are published:
// https://en.opensuse.org/Building_derived_containers#Labels
const originLabel = "org.opensuse.reference"

// Build describes an image by its manifest and config. It has the fields of release.Build and can be converted to it.
type Build struct {
	Config  digest.Digest
	Created time.Time // UTC, in the years 1 to 9998; zero if absent
	Size    int64     // bytes of config and layers, compressed
	Version string    // printable, for people only
	Origin  string    // repository without host; empty if absent or invalid
	// Manifest is the image's own digest if it was found through an index.
	Manifest digest.Digest
}

// ImageConfig returns the descriptor of the image config, to be fetched and verified; an error if the manifest is not
// of an image, or if the config is too large.
func (d Document) ImageConfig() (ocispec.Descriptor, error) {
	if !images.IsConfigType(d.Config.MediaType) {
		return ocispec.Descriptor{}, NotImage(d.Config.MediaType)
	}
	if d.Config.Size > MaxConfig {
		return ocispec.Descriptor{}, fmt.Errorf("config: too large: %d bytes, at most %d", d.Config.Size, MaxConfig)
	}
	return d.Config, nil
}

// imageConfig has the fields of an ocispec.Image that are shown or affect decisions.
type imageConfig struct {
	ocispec.Platform

	Created *time.Time `json:"created"`
	Config  struct {
		Labels map[string]string `json:"Labels"`
	} `json:"config"`
}

// Build reads the config of a manifest, and returns its platform: the platform in an index is only the publisher's
// claim.
func (d Document) Build(config []byte) (Build, ocispec.Platform, error) {
	size, err := d.Size()
	if err != nil {
		return Build{}, ocispec.Platform{}, err
	}
	if err := CheckBounds(config); err != nil {
		return Build{}, ocispec.Platform{}, fmt.Errorf("config: %w", err)
	}
	var image imageConfig
	if err := json.Unmarshal(config, &image); err != nil {
		return Build{}, ocispec.Platform{}, outside.Error(fmt.Errorf("config: %w", err))
	}
	labels := image.Config.Labels
	b := Build{
		Config: d.Config.Digest, Size: size,
		Version: outside.Line(labels[ocispec.AnnotationVersion], MaxVersion), Origin: origin(labels[originLabel]),
	}
	if image.Created != nil {
		b.Created = outside.Time(*image.Created)
	}
	return b, platforms.Normalize(image.Platform), nil
}

// Origin returns Build.Origin from an image's config, for an image on the node.
func Origin(config []byte) string {
	var image imageConfig
	if CheckBounds(config) != nil || json.Unmarshal(config, &image) != nil {
		return ""
	}
	return origin(image.Config.Labels[originLabel])
}

// origin returns the repository of a complete reference, without its host, because images are also read from mirrors.
// It returns "" for an incomplete reference.
func origin(label string) string {
	if len(label) > maxOrigin {
		return ""
	}
	named, err := reference.ParseNamed(label) // unlike docker's parser, it adds no docker.io
	if err != nil {
		return ""
	}
	return reference.Path(named)
}
