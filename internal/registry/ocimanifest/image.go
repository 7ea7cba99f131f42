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

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

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
