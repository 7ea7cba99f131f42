// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/tags"
)

// Copy is one copy that a mirror must make: a digest, and the tag that it gets.
type Copy struct {
	Repository string        `json:"repository"`
	Tag        string        `json:"tag"`
	Digest     digest.Digest `json:"digest"`
	Kind       string        `json:"kind"` // image, floating, signature or catalog
}

// Mirrored selects the releases of a channel that a mirror copies.
type Mirrored struct {
	Newest   int  // so many of the newest releases of each version; 0: all that are offered
	Floating bool // the short and intermediate tags, too, as the channel has them
}

// The kinds of copies of a release and of a version.
const (
	kindImage   = "image"
	kindCatalog = "catalog"
)

// Copies lists everything that a mirror of a channel must have: images, their signatures, the version and
// its signature. The channel's tag is last: a mirror that has it has all the others.
func (p *Publisher) Copies(ctx context.Context, v Version, m Mirrored) ([]Copy, error) {
	pages, err := p.Pages(ctx, v)
	if err != nil {
		return nil, err
	}
	images, ofImage := []Copy{}, make([][]Copy, len(v.Pages))
	for n, ref := range v.Pages {
		ofImage[n] = copiesOf(pages[ref.Image], m)
		images = append(images, ofImage[n]...)
	}
	unsigned, err := p.withoutSignatures(ctx, ofImage)
	if err != nil {
		return nil, err
	}
	signatures := make([][]Copy, len(images))
	err = each(ctx, p.jobs, images, func(ctx context.Context, n int, c Copy) error {
		if c.Kind != kindImage || unsigned[c.Repository] {
			return nil
		}
		p.step("looking for the signature of %s:%s", c.Repository, c.Tag)
		found, err := p.signatureOf(ctx, c.Repository, c.Digest)
		signatures[n] = found
		return err
	})
	if err != nil {
		return nil, err
	}
	own, err := p.signatureOf(ctx, p.repository, v.Digest)
	if err != nil {
		return nil, err
	}
	for _, tag := range []string{catalog.VersionTag(v.Channel, v.Version), v.Channel} {
		own = append(own, Copy{Repository: p.repository, Tag: tag, Digest: v.Digest, Kind: kindCatalog})
	}
	return slices.Concat(images, slices.Concat(signatures...), own), nil
}

// copiesOf lists the copies of a page.
func copiesOf(page catalog.Page, m Mirrored) []Copy {
	var out []Copy
	count := map[string]int{}
	known := map[string]bool{} // a tag is copied once; beside SUSE's scheme a short tag may name a release, as v1.34.2
	for _, r := range page.Releases {
		known[r.Tag] = true
	}
	for _, r := range page.Releases { // the newest first
		if r.Withdrawn != nil {
			continue
		}
		tag, err := tags.Parse(r.Tag)
		short := r.Tag
		if err == nil {
			short = tag.Series()
		}
		if count[short]++; m.Newest > 0 && count[short] > m.Newest {
			continue
		}
		out = append(out, Copy{Repository: page.Image, Tag: r.Tag, Digest: r.Digest, Kind: kindImage})
		if err != nil || !m.Floating {
			continue
		}
		moves := []string{tag.Short().String()}
		if intermediate, ok := tag.Intermediate(); ok {
			moves = append(moves, intermediate.String())
		}
		for _, each := range moves { // a single tag is its own, and known
			if !known[each] {
				known[each] = true
				out = append(out, Copy{Repository: page.Image, Tag: each, Digest: r.Digest, Kind: "floating"})
			}
		}
	}
	return out
}

// fewReleases is how many releases of an image are asked for their signatures at most without a look at its tags.
const fewReleases = 3

// withoutSignatures returns the repositories whose releases have no signatures: their lists of tags have none, nor has
// the registry one of the newest and the oldest release. A list alone is not enough, because a proxy lists only what it
// has served.
func (p *Publisher) withoutSignatures(ctx context.Context, ofImage [][]Copy) (map[string]bool, error) {
	unsigned := make([]bool, len(ofImage))
	err := each(ctx, p.jobs, ofImage, func(ctx context.Context, n int, copies []Copy) error {
		releases := slices.DeleteFunc(slices.Clone(copies), func(c Copy) bool { return c.Kind != kindImage })
		if len(releases) <= fewReleases {
			return nil
		}
		newest, oldest := releases[0], releases[len(releases)-1]
		p.step("looking for signatures in %s", newest.Repository)
		list, err := p.registry.Tags(ctx, newest.Repository)
		if err != nil {
			return ctx.Err() // the releases are asked instead
		}
		isListed := func(c Copy) bool { return slices.Contains(list, catalog.SignatureTag(c.Digest)) }
		if slices.ContainsFunc(releases, isListed) {
			return nil
		}
		for _, c := range []Copy{newest, oldest} {
			if found, err := p.signatureOf(ctx, c.Repository, c.Digest); err != nil || len(found) > 0 {
				return err
			}
		}
		unsigned[n] = true
		return nil
	})
	out := map[string]bool{}
	for n, copies := range ofImage {
		if unsigned[n] {
			out[copies[0].Repository] = true
		}
	}
	return out, err
}

// signatureOf returns the signature of a digest, if it has one under its tag.
func (p *Publisher) signatureOf(ctx context.Context, repository string, of digest.Digest) ([]Copy, error) {
	tag := catalog.SignatureTag(of)
	d, err := p.registry.Head(ctx, repository, tag)
	switch {
	case errors.Is(err, release.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return []Copy{{Repository: repository, Tag: tag, Digest: d, Kind: "signature"}}, nil
}

// IsChannel reports whether a copy is the tag of a version's channel, which may name a later version.
func (c Copy) IsChannel(v Version) bool { return c.Kind == kindCatalog && c.Tag == v.Channel }

// Source names a copy by its digest, as REPOSITORY@DIGEST.
func (c Copy) Source() string { return c.Repository + "@" + c.Digest.String() }

// Target names a copy on a mirror that keeps whole names, HOST or HOST/PATH. A path has no port and no
// upper case: registry.example.com:5000 stands there as registry.example.com_5000.
func (c Copy) Target(mirror string) (string, error) {
	mirror = strings.TrimSuffix(mirror, "/")
	host, path := c.Host()
	host = strings.Trim(strings.NewReplacer(":", "_", "[", "", "]", "").Replace(strings.ToLower(host)), "_.-")
	for strings.Contains(host, "__") {
		host = strings.ReplaceAll(host, "__", "_")
	}
	target := mirror + "/" + host + "/" + path + ":" + c.Tag
	named, err := reference.ParseNormalizedNamed(target)
	first, _, _ := strings.Cut(mirror, "/")
	if err == nil && strings.ContainsAny(first, ".:") && reference.Domain(named) != first {
		err = reference.ErrReferenceInvalidFormat
	}
	if err != nil || mirror == "" {
		return "", &Error{
			Kind: KindInput, Object: outside.Text(mirror), Text: "want a mirror as HOST or HOST/PATH", Err: outside.Error(err),
		}
	}
	return target, nil
}

// Host returns the registry of a copy, and the path of its repository.
func (c Copy) Host() (host, path string) {
	host, path, _ = strings.Cut(c.Repository, "/")
	return host, path
}
