// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

// listedSource answers about the tags of a repository that a catalog lists. Builds are
// described by the registry.
type listedSource struct {
	listing release.Listing
	dialect tags.Dialect
	missing map[string]error // releases (repository@digest) that the registry lacks
	Source
}

// Resolve returns the newest release under a tag that may be offered; if there is none, the
// newest one, so that the status shows why it is refused.
func (s listedSource) Resolve(_ context.Context, ref release.Reference) (release.Resolved, error) {
	is, ok := s.newest(ref, func(r release.Listed) bool {
		return r.IsOffered() && s.missing[release.Key(ref.Repository, r.Digest)] == nil
	})
	if !ok {
		is, ok = s.newest(ref, func(release.Listed) bool { return true })
	}
	by := s.listing.By
	if !ok {
		return by, fmt.Errorf("%s: %s: %w", s.listing.Catalog, ref, release.ErrUnlisted)
	}
	by.Digest = is.Digest
	return by, nil
}

// NewestListed returns the newest release of a catalog under a tag that may be offered.
func NewestListed(l release.Listing, ref release.Reference, d tags.Dialect) (release.Listed, bool) {
	return listedSource{listing: l, dialect: d}.newest(ref, release.Listed.IsOffered)
}

// newest returns the release under a tag with the highest tag of its own among those that fit.
func (s listedSource) newest(ref release.Reference, fits func(release.Listed) bool) (best release.Listed, ok bool) {
	for _, r := range s.listing.Images[ref.Repository] {
		if s.isUnder(r.Tag, ref.Tag) && fits(r) && (!ok || s.isHigher(r, best)) {
			best, ok = r, true
		}
	}
	return best, ok
}

// isUnder reports whether a floating tag names a release. Beside SUSE's scheme, in which it has the
// whole application version, v1.34 and v1 name v1.34.2. A variant is never left: 1.34-alpine names
// 1.34.2-alpine, and neither 1.34.2 nor 1.34.2-debian.
func (s listedSource) isUnder(long, tag string) bool {
	t, variantT, errT := s.parse(long)
	f, variantF, errF := s.parse(tag)
	if long == tag || errT != nil || errF != nil || variantT != variantF {
		return long == tag
	}
	if t.Form() == tags.Short && f.Form() == tags.Short {
		return strings.HasPrefix(t.App(), f.App()+".")
	}
	return f.Form() != tags.Long && t.HasV() == f.HasV() && isBuildOf(t, f)
}

func (s listedSource) isHigher(r, than release.Listed) bool {
	x, _, errX := s.parse(than.Tag)
	y, _, errY := s.parse(r.Tag)
	return errX == nil && errY == nil && tags.Compare(y, x) > 0
}

// parse reads a tag of the dialect; of a foreign one the version, and the variant that follows it.
func (s listedSource) parse(text string) (t tags.Tag, variant string, err error) {
	if t, err = s.dialect.Parse(text); !errors.Is(err, tags.ErrForeign) {
		return t, "", err
	}
	version, variant, _ := strings.Cut(text, "-")
	t, err = s.dialect.Parse(version)
	return t, variant, err
}

// Tags returns the tags of the listed releases, and the floating tags above them.
func (s listedSource) Tags(_ context.Context, repository string) ([]string, error) {
	var out []string
	seen := map[string]bool{}
	add := func(tag string) {
		if !seen[tag] {
			seen[tag] = true
			out = append(out, tag)
		}
	}
	for _, r := range s.listing.Images[repository] {
		add(r.Tag)
		t, err := s.dialect.Parse(r.Tag)
		if err != nil {
			continue
		}
		if im, ok := t.Intermediate(); ok {
			add(im.Wire())
			add(im.Short().Wire())
			continue
		}
		for app := t.App(); app != ""; app = app[:max(strings.LastIndexByte(app, '.'), 0)] {
			add(app)
		}
	}
	return out, nil
}
