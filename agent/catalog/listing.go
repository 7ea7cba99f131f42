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
	Images map[string][]Listed
}

// Listed is one release of a catalog.
type Listed struct {
	Tag     string // long tag
	Digest  digest.Digest
	Created time.Time
	Set     string // releases that are applied together; empty if the release is in no set
	// Members are all releases of the set, including this one; empty if the publisher did not list them: then all
	// releases with the same Set belong to it.
	Members []release.Reference
	Rollout Rollout // zero: at once
	// Withdrawn is why no node may run it; nil: it may be offered.
	Withdrawn *Withdrawal
	// Advisory is what the release is good for; nil: the publisher has not said.
	Advisory *format.Advisory
	// UnknownCritical is a critical field that this agent does not know; empty if there is none.
	UnknownCritical string
}

// Rollout spreads the automatic applies of a release over the nodes.
type Rollout struct {
	From   time.Time
	Spread time.Duration
	Paused bool // then From is in the year 9000, until the publisher resumes the rollout
}

// Withdrawal is a publisher's statement that a release must not run any more.
type Withdrawal struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
	// To is the long tag of the replacement; empty if none is named.
	To string `json:"to,omitempty"`
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
func (l Listing) Find(repository string, d digest.Digest) (Listed, bool) {
	var out Listed
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
	var builds []format.Release
	for _, r := range l.Images[repository] {
		builds = append(builds, format.Release{Tag: r.Tag, Digest: r.Digest, Created: r.Created, Advisory: r.Advisory})
	}
	return format.Between(builds, running, offered, s)
}

// IsOffered reports whether the release may be offered to nodes.
func (r Listed) IsOffered() bool { return r.Withdrawn == nil && r.UnknownCritical == "" }

// Newest returns the release under the tag of ref with the highest tag among those that fit.
func (l Listing) Newest(ref release.Reference, s tags.Scheme, fits func(Listed) bool) (best Listed, ok bool) {
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
