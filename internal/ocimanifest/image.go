// SPDX-License-Identifier: Apache-2.0

package ocimanifest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Bounds of what is looked at and shown.
const (
	MaxConfig        = 4 << 20 // bytes of an image config, as much as a manifest may have
	MaxSignatureBlob = 1 << 20 // bytes of a part of a signature; bundles are the largest
	MaxVersion       = 128     // bytes of a version label, the length of a tag
	maxOrigin        = 512     // bytes of the label of origin: a repository may have 255, a tag 128
)

// originLabel is where SUSE's images name the reference that they were built
// to be published as:
// https://en.opensuse.org/Building_derived_containers#Labels
const originLabel = "org.opensuse.reference"

// Build is what an image is, as its manifest and config say. It has the fields of
// release.Build, and converts into it.
type Build struct {
	Config  digest.Digest
	Created time.Time // UTC, of the years 1 to 9998; zero: not said
	Size    int64     // bytes of config and layers, compressed
	Version string    // printable, for people only
	Origin  string    // repository without host; empty: not said, or nonsense
	// Manifest is the image's own digest where an index led to it.
	Manifest digest.Digest
}

// ImageConfig is the descriptor of the image config, to be fetched and compared
// with its digest; an error where the manifest is of something else, or where the
// config is larger than it may be.
func (d Document) ImageConfig() (ocispec.Descriptor, error) {
	if !images.IsConfigType(d.Config.MediaType) {
		return ocispec.Descriptor{}, fmt.Errorf("manifest: config %q: not an image", outside.Text(d.Config.MediaType))
	}
	if d.Config.Size > MaxConfig {
		return ocispec.Descriptor{}, fmt.Errorf("config: too large: %d bytes, at most %d", d.Config.Size, MaxConfig)
	}
	return d.Config, nil
}

// imageConfig is what an ocispec.Image says that is shown or decided by.
type imageConfig struct {
	ocispec.Platform

	Created *time.Time `json:"created"`
	Config  struct {
		Labels map[string]string `json:"Labels"`
	} `json:"config"`
}

// Build reads the config of a manifest, and gives the platform that it is for:
// the one that an index names is only what its publisher wrote there.
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

// Origin is Build.Origin of an image's config, which the node has.
func Origin(config []byte) string {
	var image imageConfig
	if CheckBounds(config) != nil || json.Unmarshal(config, &image) != nil {
		return ""
	}
	return origin(image.Config.Labels[originLabel])
}

// origin is the repository of a whole reference, without its host: images are
// looked at in mirrors as well. What is no whole reference is nothing.
func origin(label string) string {
	if len(label) > maxOrigin {
		return ""
	}
	named, err := reference.ParseNamed(label) // unlike docker, it adds no docker.io
	if err != nil {
		return ""
	}
	return reference.Path(named)
}
