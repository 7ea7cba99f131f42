// SPDX-License-Identifier: Apache-2.0

package ocimanifest

import (
	"errors"
	"fmt"

	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

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
	return Build{}, fmt.Errorf("index %s: over %d indexes in one another", top.Digest, MaxIndexes)
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
