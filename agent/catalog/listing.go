// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/tags"
)

// Channel is a channel of a release catalog.
type Channel interface {
	// Refresh asks for a newer version and returns the newest verified listing of these images. Without a newer version
	// it makes one HEAD request. The error says why there is no newer version: ErrNotFound, ErrUnsigned, ErrForged,
	// ErrCatalog, or a SourceError of package release.
	Refresh(ctx context.Context, images []string) (Listing, error)
	// Last returns the last verified listing without a request. Its Catalog is always set.
	Last(ctx context.Context) Listing
	// Forget removes the verified listing, so that the next Refresh accepts any verified version.
	Forget(ctx context.Context) error
}

// Listing is the content of a verified catalog. The zero value is for a node without a catalog.
type Listing struct {
	// Catalog is the repository and channel, as "registry.example.com/catalog:prod".
	Catalog string
	// Version grows by one with each publication of the channel; 0: no catalog has been read.
	Version uint64
	// Digest of the catalog's manifest.
	Digest  digest.Digest
	Created time.Time
	// Expires is the time by which the publisher must publish again; zero: never.
	Expires time.Time
	// By is the host that served it last.
	By release.Resolved
	// Images are the releases by repository, the newest first. An image of the node without an
	// entry is not listed.
	Images map[string][]format.Release
}

// Withdrawal is a publisher's statement that a release must not run any more.
type Withdrawal struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
	// To is the long tag of the replacement; empty if none is named.
	To string `json:"to,omitempty"`
}

// WithdrawalOf returns a publisher's withdrawal as the status shows it; nil for nil.
func WithdrawalOf(w *format.Withdrawal) *Withdrawal {
	if w == nil {
		return nil
	}
	return &Withdrawal{At: w.At, Reason: w.Reason, To: w.To}
}

// String returns, for example, "broken (instead: 4.0.0-rev2-build2.1)".
func (w Withdrawal) String() string {
	if w.To == "" {
		return w.Reason
	}
	return w.Reason + " (instead: " + w.To + ")"
}

// IsExpired reports whether the publisher should have published again.
func (l Listing) IsExpired(now time.Time) bool {
	return l.Version > 0 && !l.Expires.IsZero() && !now.Before(l.Expires)
}

// IsListed reports whether the catalog has a page for a repository.
func (l Listing) IsListed(repository string) bool {
	_, is := l.Images[repository]
	return is
}

// Find returns the entry of a release; false if it is not listed. A digest listed under several tags is withdrawn if
// one of them is.
func (l Listing) Find(repository string, d digest.Digest) (format.Release, bool) {
	var out format.Release
	found := false
	for _, r := range l.Images[repository] {
		if r.Digest == d && d != "" && (!found || out.Withdrawn == nil && r.Withdrawn != nil) {
			out, found = r, true
		}
	}
	return out, found
}

// Brings returns what the change of an image from the running digest to the offered one brings: what the publisher says
// of each build in between. Without a running digest it is what the offered release brings. It is partial if the
// catalog does not list one of the two.
func (l Listing) Brings(repository string, running, offered digest.Digest, s tags.Scheme) format.Brought {
	return format.Between(l.Images[repository], running, offered, s)
}

// Newest returns the release under the tag of ref with the highest tag among those that fit.
func (l Listing) Newest(
	ref release.Reference, s tags.Scheme, fits func(format.Release) bool,
) (best format.Release, ok bool) {
	floating, errFloating := s.Parse(ref.Tag)
	var highest tags.Tag
	var errHighest error
	for _, r := range l.Images[ref.Repository] {
		t, err := s.Parse(r.Tag)
		isUnder := r.Tag == ref.Tag || err == nil && errFloating == nil && t.IsUnder(floating)
		isHigher := !ok || err == nil && errHighest == nil && tags.Compare(t, highest) > 0
		if isUnder && isHigher && fits(r) {
			best, ok, highest, errHighest = r, true, t, err
		}
	}
	return best, ok
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

// MembersOf returns the releases in the set of a listed release, including itself; nil if it is in no set.
func (l Listing) MembersOf(repository string, r format.Release) []release.Reference {
	if r.Set == "" {
		return nil
	}
	var out []release.Reference
	for _, m := range r.Members {
		image, tag := format.SplitMember(m)
		out = append(out, release.Reference{Repository: image, Tag: tag})
	}
	if len(out) > 0 {
		return out
	}
	out = []release.Reference{{Repository: repository, Tag: r.Tag}}
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
func (l Listing) ByTag(ref release.Reference) (format.Release, int) {
	at := slices.IndexFunc(l.Images[ref.Repository], func(r format.Release) bool { return r.Tag == ref.Tag })
	if at < 0 {
		return format.Release{}, -1
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
func (l Listing) withdrawnWith(r format.Release, gone []release.Reference) *format.Withdrawal {
	if r.Withdrawn != nil || r.Set == "" {
		return nil
	}
	for _, ref := range gone {
		is, _ := l.ByTag(ref)
		if is.Set == r.Set && len(r.Members) == 0 || slices.Contains(r.Members, format.Member(ref.Repository, ref.Tag)) {
			return &format.Withdrawal{At: is.Withdrawn.At, Reason: fmt.Sprintf(
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
