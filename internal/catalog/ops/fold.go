// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"maps"
	"slices"

	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// State is the content of a channel.
type State struct {
	Pages map[string]catalog.Page // by image
	catalog.Times

	Merged []string // tags of the ops that were folded, sorted
}

// Outcome is the result of a change that an op asks for.
type Outcome struct {
	Changed bool           // false: there was nothing to do
	Err     *catalog.Error // why it was refused
}

// IsMerged reports whether the state counts an op as folded.
func (s State) IsMerged(op string) bool {
	_, found := slices.BinarySearch(s.Merged, op)
	return found
}

// Fold returns the state with ops of a channel folded in. The ops may come in any order, in any number of calls, and
// repeatedly. For promote, withdraw, refresh, freeze and note the later op counts; a withdrawal is taken back only by a
// later op with Again. Of two adds of a release in different sets, the set that sorts first stays, and any set before
// none; of adds in one set, the members come together. Without a note, a release has the advisory of the add or promote
// that says it matters most; a note lists nothing. A digest that is listed under a long tag is never replaced: of two,
// the one that was folded first stays. A release that a page has dropped (see catalog.Kept) loses its set, rollout,
// advisory and withdrawal.
func Fold(s State, folded ...catalog.Op) (State, []Outcome) {
	out := s
	out.Pages, out.Merged = maps.Clone(s.Pages), slices.Clone(s.Merged)
	if out.Pages == nil {
		out.Pages = map[string]catalog.Page{}
	}
	folded = slices.Clone(folded)
	slices.SortFunc(folded, func(a, b catalog.Op) int { return a.Mark().Compare(b.Mark()) })
	var results []Outcome
	pages := map[string]*page{}
	for _, op := range folded {
		out.Turn = max(out.Turn, op.Turn)
		if op.Do == catalog.ActionRefresh && op.Mark().Compare(out.Refreshed) > 0 {
			out.Expires, out.Refreshed = op.Expires, op.Mark()
		}
		if op.Do == catalog.ActionFreeze && op.Mark().Compare(out.Freeze) > 0 {
			out.Frozen, out.Freeze = op.Until, op.Mark()
		}
		for _, c := range op.Changes {
			if pages[c.Image] == nil {
				pages[c.Image] = newPage(out.Pages[c.Image])
			}
			results = append(results, pages[c.Image].fold(op, c))
		}
		out.Merged = append(out.Merged, op.Tag)
	}
	for image, p := range pages {
		if p.changed {
			out.Pages[image] = catalog.Page{Image: image, Releases: p.releases}.Trimmed()
		}
	}
	slices.Sort(out.Merged)
	out.Merged = slices.Compact(out.Merged)
	return out, results
}

// page is a page that changes are folded into.
type page struct {
	releases []catalog.Release
	at       map[string]int // by tag
	changed  bool
}

func newPage(from catalog.Page) *page {
	p := &page{releases: slices.Clone(from.Releases), at: map[string]int{}}
	for n, r := range p.releases {
		p.at[r.Tag] = n
	}
	return p
}

// fold folds one change in.
func (p *page) fold(op catalog.Op, c catalog.Change) (out Outcome) {
	want := c.Release
	want.Members, want.Op, want.Turn, want.Again = op.Sets[want.Set], "", 0, nil
	at, listed := p.at[want.Tag]
	if !listed && op.Do == catalog.ActionNote {
		return out
	}
	if !listed {
		at = len(p.releases)
		fresh := catalog.Release{Tag: want.Tag, Digest: want.Digest}
		p.releases, p.at[want.Tag] = append(p.releases, fresh), at
	}
	is := p.releases[at]
	if is.Digest != want.Digest {
		out.Err = catalog.NewError(catalog.KindConflict, "%s:%s is listed with digest %s, not %s",
			c.Image, is.Tag, is.Digest, want.Digest)
		return out
	}
	next := with(is, op, want)
	out.Changed = !listed || !IsSame(is, next) || is.Offered() != next.Offered()
	if out.Changed || !isSameMark(is.Again, next.Again) || is.Withdrawn != next.Withdrawn ||
		is.Advisory != next.Advisory {
		p.releases[at], p.changed = next, true
	}
	return out
}

func isSameMark(a, b *catalog.Mark) bool { return a == b || a != nil && b != nil && *a == *b }

// with returns a release as an op changes it. Four things of it change, each by the later op and whatever becomes of
// the others: what is offered, the withdrawal, the offer in spite of one, and the advisory.
func with(is catalog.Release, op catalog.Op, want catalog.Release) catalog.Release {
	mark, advisory := op.Mark(), is.Advisory.With(want.Advisory)
	switch op.Do {
	case catalog.ActionPromote:
		if mark.Compare(is.Offered()) > 0 {
			is = offered(is, want, mark)
		}
		if op.Again && mark.Compare(markOf(is.Again)) > 0 {
			is.Again = &mark
		}
	case catalog.ActionWithdraw:
		if is.Withdrawn == nil || mark.Compare(withdrawnBy(is)) > 0 {
			gone := *want.Withdrawn
			gone.Mark = mark
			is.Withdrawn = &gone
		}
		is = added(is, want)
	case catalog.ActionAdd:
		is = added(is, want)
	case catalog.ActionNote:
		if advisory = is.Advisory; mark.Compare(notedBy(is)) > 0 {
			noted := *want.Advisory
			noted.Mark, advisory = mark, &noted
		}
	}
	is.Advisory = advisory
	if is.Withdrawn != nil && markOf(is.Again).Compare(withdrawnBy(is)) > 0 {
		is.Withdrawn = nil
	}
	return is
}

// offered returns a release as an op promotes it.
func offered(is, want catalog.Release, mark catalog.Mark) catalog.Release {
	want.Op, want.Turn, want.Again, want.Withdrawn = mark.Op, mark.Turn, is.Again, is.Withdrawn
	if is.Withdrawn != nil && is.Withdrawn.Op == "" { // an older publisher has withdrawn it, with one mark for all
		gone := *is.Withdrawn
		gone.Mark = is.Offered()
		want.Withdrawn = &gone
	}
	return want
}

// added returns a release as an op adds it. What was promoted stays as it is.
func added(is, want catalog.Release) catalog.Release {
	if is.Op != "" {
		return is
	}
	if is.Created.IsZero() {
		is.Created = want.Created
	}
	if is.Critical == nil && is.Unknown == nil {
		is.Critical, is.Unknown = want.Critical, want.Unknown
	}
	is.Set, is.Members = joined(is, want)
	return is
}

func markOf(m *catalog.Mark) catalog.Mark {
	if m == nil {
		return catalog.Mark{}
	}
	return *m
}

// withdrawnBy returns the mark of the op that has withdrawn a release.
func withdrawnBy(r catalog.Release) catalog.Mark {
	if r.Withdrawn.Op == "" {
		return r.Offered()
	}
	return r.Withdrawn.Mark
}

// notedBy returns the mark of the op that has noted the advisory of a release.
func notedBy(r catalog.Release) catalog.Mark {
	if r.Advisory == nil {
		return catalog.Mark{}
	}
	return r.Advisory.Mark
}

// joined returns the set of a release that was added twice, and its members: those of both, as far as there is space.
func joined(r, other catalog.Release) (set string, members []string) {
	switch {
	case r.Set == other.Set:
		if slices.Equal(r.Members, other.Members) || len(other.Members) == 0 {
			return r.Set, r.Members
		}
		members = slices.Concat(r.Members, other.Members)
		slices.Sort(members)
		if members = slices.Compact(members); catalog.AreFew(members) {
			return r.Set, members
		}
		return r.Set, r.Members
	case other.Set == "" || r.Set != "" && r.Set < other.Set:
		return r.Set, r.Members
	}
	return other.Set, other.Members
}
