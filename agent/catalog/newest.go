// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

// Newest returns the release under the tag of ref with the highest tag among those that fit.
func (l Listing) Newest(ref release.Reference, s tags.Scheme, fits func(Listed) bool) (best Listed, ok bool) {
	for _, r := range l.Images[ref.Repository] {
		if isUnder(s, r.Tag, ref.Tag) && fits(r) && (!ok || isHigher(s, r, best)) {
			best, ok = r, true
		}
	}
	return best, ok
}

// isUnder reports whether a floating tag names a release, or is the release's own tag.
func isUnder(s tags.Scheme, long, tag string) bool {
	t, errT := s.Parse(long)
	floating, errF := s.Parse(tag)
	return long == tag || errT == nil && errF == nil && t.IsUnder(floating)
}

func isHigher(s tags.Scheme, r, than Listed) bool {
	x, errX := s.Parse(than.Tag)
	y, errY := s.Parse(r.Tag)
	return errX == nil && errY == nil && tags.Compare(y, x) > 0
}

// Tags returns the tags of the listed releases, and the floating tags above them.
func (l Listing) Tags(repository string, s tags.Scheme) []string {
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
		if t, err := s.Parse(r.Tag); err == nil {
			for _, floating := range t.Floating() {
				add(floating)
			}
		}
	}
	return out
}
