// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/platforms"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/store"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

// Image is a release that a person names.
type Image struct {
	Repository string // normalised
	Tag        string
	Digest     digest.Digest // empty: the one that the tag names
}

// ParseImage reads REPOSITORY:TAG, or REPOSITORY:TAG@DIGEST.
func ParseImage(text string) (Image, error) {
	named, err := reference.ParseNormalizedNamed(text)
	if err == nil {
		err = store.CheckRepository(named.Name())
	}
	if err != nil {
		return Image{}, &Error{Kind: KindInput, Object: outside.Text(text), Text: "not an image", Err: outside.Error(err)}
	}
	image := Image{Repository: named.Name()}
	if tagged, ok := named.(reference.Tagged); ok {
		image.Tag = tagged.Tag()
	}
	if digested, ok := named.(reference.Digested); ok {
		image.Digest = digested.Digest()
	}
	if image.Tag == "" {
		return Image{}, refuse(KindInput, outside.Text(text), "the tag is missing: want REPOSITORY:TAG")
	}
	return image, nil
}

func (i Image) String() string { return i.Repository + ":" + i.Tag }

// Lookup checks an image in its registry: the tag is there and does not move, it names the given
// digest, and the image is for all of these platforms. It returns the release.
func (p *Publisher) Lookup(ctx context.Context, i Image, on []ocispec.Platform) (catalog.Release, error) {
	kind, body, err := p.registry.Manifest(ctx, i.Repository, i.Tag)
	d := digest.FromBytes(body)
	switch {
	case errors.Is(err, release.ErrNotFound):
		e := refuse(KindTag, i.String(), "the registry has no such tag")
		if list, err := p.imageTags(ctx, i.Repository); err == nil {
			e.Near = near(i.Tag, list)
		}
		return catalog.Release{}, e
	case err != nil:
		return catalog.Release{}, err
	case i.Digest != "" && i.Digest != d:
		return catalog.Release{}, refuse(KindDigest, i.String(), "the tag names %s, not %s", d, i.Digest)
	}
	if err := p.checkFloats(ctx, i, d); err != nil {
		return catalog.Release{}, err
	}
	top, err := ocimanifest.Parse(kind, body)
	if err != nil {
		return catalog.Release{}, fmt.Errorf("%s: %w", i, err)
	}
	r := catalog.Release{Tag: i.Tag, Digest: d}
	for _, platform := range on {
		build, err := p.describe(ctx, i, d, top, platform)
		if err != nil {
			return catalog.Release{}, err
		}
		r.Created = build.Created
	}
	again, err := p.registry.Head(ctx, i.Repository, i.Tag)
	if err != nil && !errors.Is(err, release.ErrNotFound) {
		return catalog.Release{}, err
	}
	if again != d {
		return catalog.Release{}, refuse(KindTag, i.String(), "the tag has moved while it was read: it named %s", d)
	}
	return r, nil
}

// describe reads the build of an image for a platform. top is its manifest or index.
func (p *Publisher) describe(
	ctx context.Context, i Image, d digest.Digest, top ocimanifest.Document, platform ocispec.Platform,
) (ocimanifest.Build, error) {
	content := ocimanifest.Content{
		Document: func(desc ocispec.Descriptor) (ocimanifest.Document, error) {
			if desc.Digest == d {
				return top, nil
			}
			kind, body, err := p.registry.Manifest(ctx, i.Repository, desc.Digest.String())
			if err != nil {
				return ocimanifest.Document{}, err
			}
			return ocimanifest.Parse(kind, body)
		},
		Config: func(desc ocispec.Descriptor) ([]byte, error) { return p.registry.Blob(ctx, i.Repository, desc) },
	}
	build, err := content.Describe(ocispec.Descriptor{Digest: d}, platforms.OnlyStrict(platform))
	switch {
	case errors.Is(err, ocimanifest.ErrPlatform):
		return build, refuse(KindPlatform, i.String(), "not for %s", platforms.Format(platform))
	case errors.Is(err, release.ErrNotFound):
		return build, &Error{Kind: KindTag, Object: i.String(), Text: "a part of the image is missing", Err: err}
	case err != nil:
		return build, fmt.Errorf("%s: %w", i, err)
	}
	return build, nil
}

// imageTags returns the tags of a repository of images. It asks once for all builds of an image.
func (p *Publisher) imageTags(ctx context.Context, repository string) ([]string, error) {
	return p.cache.tagsOf(repository, func() ([]string, error) { return p.registry.Tags(ctx, repository) })
}
