// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"errors"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

// Newest returns the release under a tag with the highest tag of its own among those that fit.
func (l Listing) Newest(ref release.Reference, d tags.Dialect, fits func(Listed) bool) (best Listed, ok bool) {
	for _, r := range l.Images[ref.Repository] {
		if isUnder(d, r.Tag, ref.Tag) && fits(r) && (!ok || isHigher(d, r, best)) {
			best, ok = r, true
		}
	}
	return best, ok
}

// isUnder reports whether a floating tag names a release. Beside SUSE's scheme, in which it has the
// whole application version, v1.34 and v1 name v1.34.2. A variant is never left: 1.34-alpine names
// 1.34.2-alpine, and neither 1.34.2 nor 1.34.2-debian.
func isUnder(d tags.Dialect, long, tag string) bool {
	t, variantT, errT := parse(d, long)
	f, variantF, errF := parse(d, tag)
	if long == tag || errT != nil || errF != nil || variantT != variantF {
		return long == tag
	}
	if t.Form() == tags.Short && f.Form() == tags.Short {
		return strings.HasPrefix(t.App(), f.App()+".")
	}
	return f.Form() != tags.Long && t.HasV() == f.HasV() && t.IsBuildOf(f)
}

func isHigher(d tags.Dialect, r, than Listed) bool {
	x, _, errX := parse(d, than.Tag)
	y, _, errY := parse(d, r.Tag)
	return errX == nil && errY == nil && tags.Compare(y, x) > 0
}

// parse reads a tag of a dialect; of a foreign one the version, and the variant that follows it.
func parse(d tags.Dialect, text string) (t tags.Tag, variant string, err error) {
	if t, err = d.Parse(text); !errors.Is(err, tags.ErrForeign) {
		return t, "", err
	}
	version, variant, _ := strings.Cut(text, "-")
	t, err = d.Parse(version)
	return t, variant, err
}

// Tags returns the tags of the listed releases, and the floating tags above them.
func (l Listing) Tags(repository string, d tags.Dialect) []string {
	var out []string
	seen := map[string]bool{}
	add := func(tag string) {
		if !seen[tag] {
			seen[tag] = true
			out = append(out, tag)
		}
	}
	for _, r := range l.Images[repository] {
		add(r.Tag)
		t, err := d.Parse(r.Tag)
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
	return out
}
