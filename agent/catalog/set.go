// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// MembersOf returns the releases in the set of a listed release, including itself; nil if it is in no set.
func (l Listing) MembersOf(repository string, r Listed) []release.Reference {
	if r.Set == "" {
		return nil
	}
	if len(r.Members) > 0 {
		return r.Members
	}
	out := []release.Reference{{Repository: repository, Tag: r.Tag}}
	for _, other := range slices.Sorted(maps.Keys(l.Images)) {
		for _, is := range l.Images[other] {
			if ref := (release.Reference{Repository: other, Tag: is.Tag}); is.Set == r.Set && !slices.Contains(out, ref) {
				out = append(out, ref)
			}
		}
	}
	return out
}

// ByTag returns the entry of a tag and its index in the repository's list, the newest first; -1 if it is not listed.
func (l Listing) ByTag(ref release.Reference) (Listed, int) {
	at := slices.IndexFunc(l.Images[ref.Repository], func(r Listed) bool { return r.Tag == ref.Tag })
	if at < 0 {
		return Listed{}, -1
	}
	return l.Images[ref.Repository][at], at
}

// WithWithdrawnSets returns a listing in which sets are withdrawn as a whole: if one release of a set is withdrawn, so
// are the others, unless a newer release replaces the withdrawn one.
func (l Listing) WithWithdrawnSets() Listing {
	for changed := true; changed; {
		l, changed = l.withdrawSets()
	}
	return l
}

func (l Listing) withdrawSets() (out Listing, changed bool) {
	gone := l.withdrawn()
	if len(gone) == 0 {
		return l, false
	}
	out = l
	out.Images = maps.Clone(l.Images)
	for repository, page := range l.Images {
		next := slices.Clone(page)
		for n, r := range page {
			if w := l.withdrawnWith(r, gone); w != nil {
				next[n].Withdrawn, changed = w, true
			}
		}
		out.Images[repository] = next
	}
	return out, changed
}

// withdrawnWith returns the withdrawal of a release whose set has a withdrawn one; nil if it has none.
func (l Listing) withdrawnWith(r Listed, gone []release.Reference) *Withdrawal {
	if r.Withdrawn != nil || r.Set == "" {
		return nil
	}
	for _, ref := range gone {
		is, _ := l.ByTag(ref)
		if is.Set == r.Set && len(r.Members) == 0 || slices.Contains(r.Members, ref) {
			return &Withdrawal{At: is.Withdrawn.At, Reason: fmt.Sprintf(
				"its set %s contains %s, which was withdrawn: %s", r.Set, ref, is.Withdrawn.Reason,
			)}
		}
	}
	return nil
}

// withdrawn returns the withdrawn releases without a newer replacement.
func (l Listing) withdrawn() []release.Reference {
	var out []release.Reference
	for _, repository := range slices.Sorted(maps.Keys(l.Images)) {
		for _, r := range l.Images[repository] {
			if r.IsOffered() {
				break
			}
			if r.Withdrawn != nil {
				out = append(out, release.Reference{Repository: repository, Tag: r.Tag})
			}
		}
	}
	return out
}
