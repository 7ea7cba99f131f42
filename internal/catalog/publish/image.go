// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containerd/platforms"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/ocimanifest"
	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/tags"
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

// Lookup checks an image in its registry: the tag is there and does not float, it names the given
// digest, and the image is for all of these platforms. It returns the release.
func (p *Publisher) Lookup(ctx context.Context, i Image, on []ocispec.Platform) (catalog.Release, error) {
	if err := p.checkTag(ctx, i); err != nil {
		return catalog.Release{}, err
	}
	d, err := p.client.Head(ctx, i.Repository, i.Tag)
	switch {
	case errors.Is(err, release.ErrNotFound):
		e := refuse(KindTag, i.String(), "the registry has no such tag")
		if list, err := p.client.Tags(ctx, i.Repository); err == nil {
			e.Near = near(i.Tag, list)
		}
		return catalog.Release{}, e
	case err != nil:
		return catalog.Release{}, err
	case i.Digest != "" && i.Digest != d:
		e := refuse(KindDigest, i.String(), "the tag names %s, not %s", d, i.Digest)
		return catalog.Release{}, e
	}
	r := catalog.Release{Tag: i.Tag, Digest: d}
	for _, platform := range on {
		build, err := p.describe(ctx, i, d, platform)
		if err != nil {
			return catalog.Release{}, err
		}
		r.Created = build.Created
	}
	return r, nil
}

// checkTag refuses tags that float, and those that are mistakes.
func (p *Publisher) checkTag(ctx context.Context, i Image) error {
	tag, err := tags.Parse(i.Tag)
	switch {
	case errors.Is(err, tags.ErrForeign):
		return nil // of another scheme, in which nothing tells what floats
	case err != nil:
		return &Error{Kind: KindTag, Object: i.String(), Text: "not a long tag", Err: err}
	case tag.Form() == tags.Long:
		return nil
	}
	e := refuse(KindTag, i.String(), "%s tags move with each build: want a long tag", tag.Form())
	if long, ok := p.longTag(ctx, i, tag); ok {
		e.Near = []string{long}
	}
	return e
}

// longTag returns the long tag with the digest that a floating tag names now.
func (p *Publisher) longTag(ctx context.Context, i Image, floating tags.Tag) (string, bool) {
	list, err := p.client.Tags(ctx, i.Repository)
	if err != nil {
		return "", false
	}
	want, err := p.client.Head(ctx, i.Repository, i.Tag)
	if err != nil {
		return "", false
	}
	var long []tags.Tag
	for _, text := range list {
		if t, err := tags.Parse(text); err == nil && t.Form() == tags.Long && isBelow(t, floating) {
			long = append(long, t)
		}
	}
	slices.SortFunc(long, func(a, b tags.Tag) int { return tags.Compare(b, a) })
	const most = 8
	for _, t := range long[:min(len(long), most)] {
		if d, err := p.client.Head(ctx, i.Repository, t.String()); err == nil && d == want {
			return t.String(), true
		}
	}
	return "", false
}

// isBelow reports whether a floating tag may name the image of a long tag.
func isBelow(long, floating tags.Tag) bool {
	if of, ok := long.Intermediate(); ok && of.String() == floating.String() {
		return true
	}
	return long.Short().String() == floating.String()
}

// describe reads what an image is for a platform.
func (p *Publisher) describe(
	ctx context.Context, i Image, d digest.Digest, platform ocispec.Platform,
) (ocimanifest.Build, error) {
	content := ocimanifest.Content{
		Document: func(desc ocispec.Descriptor) (ocimanifest.Document, error) {
			kind, body, err := p.client.Manifest(ctx, i.Repository, desc.Digest.String())
			if err != nil {
				return ocimanifest.Document{}, err
			}
			return ocimanifest.Parse(kind, body)
		},
		Config: func(desc ocispec.Descriptor) ([]byte, error) { return p.client.Blob(ctx, i.Repository, desc) },
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
