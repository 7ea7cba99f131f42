// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// State is the content of a channel.
type State struct {
	Pages     map[string]Page // by image
	Expires   time.Time       // zero: never
	Refreshed string          // the op that set Expires
	Frozen    time.Time       // see Manifest
	Freeze    string          // the op that set Frozen
	Merged    []string        // tags of the ops that were folded, sorted
}

// Outcome is the result of a change that an op asks for.
type Outcome struct {
	Op, Image, Tag string
	Changed        bool   // false: there was nothing to do
	Err            *Error // why it was refused
}

// IsMerged reports whether the state counts an op as folded.
func (s State) IsMerged(op string) bool {
	_, found := slices.BinarySearch(s.Merged, op)
	return found
}

// Fold returns the state with ops of a channel folded in. It is pure. The ops may come in any
// order, in any number of calls, and repeatedly: promote, withdraw, refresh and freeze go by the
// later op; of two adds of a release in different sets, the set that sorts first stays, and any set
// before none; of adds in one set, the members come together. A digest
// that is listed under a long tag is never replaced: of two, the one that was folded first
// stays. A release that a page has dropped (see Kept) loses its set, rollout and withdrawal.
func Fold(s State, ops ...Op) (State, []Outcome) {
	out := s
	out.Pages, out.Merged = maps.Clone(s.Pages), slices.Clone(s.Merged)
	if out.Pages == nil {
		out.Pages = map[string]Page{}
	}
	ops = slices.Clone(ops)
	slices.SortFunc(ops, func(a, b Op) int { return strings.Compare(a.Tag, b.Tag) })
	var results []Outcome
	folded := map[string]*foldedPage{}
	for _, op := range ops {
		if op.Do == ActionRefresh && op.Tag > out.Refreshed {
			out.Expires, out.Refreshed = op.Expires, op.Tag
		}
		if op.Do == ActionFreeze && op.Tag > out.Freeze {
			out.Frozen, out.Freeze = op.Until, op.Tag
		}
		for _, c := range op.Changes {
			if folded[c.Image] == nil {
				folded[c.Image] = newFoldedPage(out.Pages[c.Image])
			}
			results = append(results, folded[c.Image].fold(op, c))
		}
		out.Merged = append(out.Merged, op.Tag)
	}
	for image, d := range folded {
		if d.changed {
			out.Pages[image] = Page{Image: image, Releases: d.releases}.trimmed()
		}
	}
	slices.Sort(out.Merged)
	out.Merged = slices.Compact(out.Merged)
	return out, results
}

// foldedPage is a page that changes are folded into.
type foldedPage struct {
	releases []Release
	at       map[string]int // by tag
	changed  bool
}

func newFoldedPage(p Page) *foldedPage {
	d := &foldedPage{releases: slices.Clone(p.Releases), at: map[string]int{}}
	for n, r := range d.releases {
		d.at[r.Tag] = n
	}
	return d
}

// fold folds one change in.
func (d *foldedPage) fold(op Op, c Change) Outcome {
	out := Outcome{Op: op.Tag, Image: c.Image, Tag: c.Release.Tag}
	want := c.Release
	want.Members = op.Sets[want.Set]
	if want.Op = op.Tag; op.Do == ActionAdd {
		want.Op = ""
	}
	if want.Withdrawn != nil {
		want.Rollout, want.Members = nil, nil
	}
	at, found := d.at[want.Tag]
	if !found {
		d.at[want.Tag] = len(d.releases)
		d.releases, d.changed, out.Changed = append(d.releases, want), true, true
		return out
	}
	is := d.releases[at]
	switch {
	case is.Digest != want.Digest:
		out.Err = newError(KindConflict, "%s:%s is listed with digest %s, not %s", c.Image, is.Tag, is.Digest, want.Digest)
		return out
	case op.Do != ActionAdd && is.Op >= want.Op:
		return out
	case op.Do == ActionAdd:
		set, members := is.joined(want)
		if is.Op != "" || set == is.Set && len(members) == len(is.Members) {
			return out
		}
		if set == is.Set {
			want = is
		}
		want.Members = members
	}
	d.releases[at], d.changed, out.Changed = want, true, true
	return out
}

// joined returns the set of a release that was added twice, and its members: those of both, as far
// as there is space.
func (r Release) joined(other Release) (set string, members []string) {
	switch {
	case r.Set == other.Set:
		members = slices.Concat(r.Members, other.Members)
		slices.Sort(members)
		if members = slices.Compact(members); areFew(members) {
			return r.Set, members
		}
		return r.Set, r.Members
	case other.Set == "" || r.Set != "" && r.Set < other.Set:
		return r.Set, r.Members
	}
	return other.Set, other.Members
}
