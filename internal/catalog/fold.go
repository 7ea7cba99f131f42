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
	Merged    []string        // tags of the ops that were folded, sorted
}

// Outcome is what became of a change that an op asks for.
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
// order, in any number of calls, and repeatedly: promote, withdraw and refresh go by the later
// op; of two adds of a release in different sets, the set that sorts first stays. A digest
// that is listed under a long tag is never replaced: of two, the one that was folded first
// stays. What a page has dropped (see Kept) is forgotten with all that was said of it.
func Fold(s State, ops ...Op) (State, []Outcome) {
	out := State{Pages: maps.Clone(s.Pages), Expires: s.Expires, Refreshed: s.Refreshed, Merged: slices.Clone(s.Merged)}
	if out.Pages == nil {
		out.Pages = map[string]Page{}
	}
	ops = slices.Clone(ops)
	slices.SortFunc(ops, func(a, b Op) int { return strings.Compare(a.Tag, b.Tag) })
	var results []Outcome
	changed := map[string]bool{}
	for _, op := range ops {
		if op.Do == ActionRefresh && op.Tag > out.Refreshed {
			out.Expires, out.Refreshed = op.Expires, op.Tag
		}
		for _, c := range op.Changes {
			page := out.Pages[c.Image]
			r := page.fold(op, c)
			if r.Changed {
				out.Pages[c.Image], changed[c.Image] = page, true
			}
			results = append(results, r)
		}
		out.Merged = append(out.Merged, op.Tag)
	}
	for image := range changed {
		out.Pages[image] = out.Pages[image].trimmed()
	}
	slices.Sort(out.Merged)
	out.Merged = slices.Compact(out.Merged)
	return out, results
}

// fold folds one change into the page.
func (p *Page) fold(op Op, c Change) Outcome {
	out := Outcome{Op: op.Tag, Image: c.Image, Tag: c.Release.Tag}
	want := c.Release
	if want.Op = op.Tag; op.Do == ActionAdd {
		want.Op = ""
	}
	if want.Withdrawn != nil {
		want.Set, want.Rollout = "", nil
	}
	at := slices.IndexFunc(p.Releases, func(r Release) bool { return r.Tag == want.Tag })
	if at < 0 {
		p.Image, p.Releases, out.Changed = c.Image, append(slices.Clone(p.Releases), want), true
		return out
	}
	is := p.Releases[at]
	switch {
	case is.Digest != want.Digest:
		out.Err = newError(KindConflict, "%s:%s is listed with digest %s, not %s", c.Image, is.Tag, is.Digest, want.Digest)
		return out
	case op.Do == ActionAdd && (is.Op != "" || is.Set <= want.Set), op.Do != ActionAdd && is.Op >= want.Op:
		return out
	}
	p.Releases, out.Changed = slices.Clone(p.Releases), true
	p.Releases[at] = want
	return out
}
