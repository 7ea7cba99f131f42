// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// asked is a request, compared with the content of its channel.
type asked struct {
	do      catalog.Action
	changes []catalog.Change
	sets    map[string][]string // the members of the sets of changes
	left    []Outcome           // changes with nothing to do
}

// ask compares a request with its channel. It refuses to offer a withdrawn release again. former are members of its
// sets that pages do not tell.
func ask(r Request, state catalog.State, former map[string][]string) (asked, error) {
	a := asked{do: r.Do, sets: map[string][]string{}}
	for _, c := range r.Changes {
		left, err := a.take(r, state, c)
		if err != nil {
			return asked{}, err
		}
		if left != "" {
			a.left = append(a.left, Outcome{Image: c.Image, Tag: c.Release.Tag, Digest: c.Release.Digest, Note: left})
			continue
		}
		a.changes = append(a.changes, c)
	}
	if r.Do == catalog.ActionPromote && r.Withdrawn {
		a.offerAgain(state)
	}
	a.gatherSets(state, former)
	moves := func(c catalog.Change) bool { return movesSet(state, c) }
	if r.Do == catalog.ActionAdd && slices.ContainsFunc(a.changes, moves) {
		a.promoteListed(state)
	}
	for n := range a.changes {
		a.changes[n].Release.Members = nil // the op has them once
	}
	return a, nil
}

// take returns why there is nothing to do for a change; "": there is.
func (a *asked) take(r Request, state catalog.State, c catalog.Change) (left string, err error) {
	page := state.Pages[c.Image]
	why := withdrawnFrom(r.Channel, page, c.Release)
	switch {
	case why == "":
	case r.Do == catalog.ActionPromote && !r.Withdrawn:
		return "", refuse(KindAgain, c.Member(), "%s", why)
	case r.Do == catalog.ActionAdd && c.Release.Set != "":
		return "", refuse(KindWithdrawn, c.Member(), "%s: it cannot be in a set", why)
	case r.Do == catalog.ActionAdd && find(page, c.Release.Tag) == nil:
		return why, nil // another tag of a digest that is withdrawn
	}
	return "", nil
}

// offerAgain adds the other withdrawn tags of the digests that are offered again, because nodes compare digests.
func (a *asked) offerAgain(state catalog.State) {
	for _, c := range slices.Clone(a.changes) {
		for _, r := range state.Pages[c.Image].Releases {
			other := catalog.Change{Image: c.Image, Release: r}
			isKnown := slices.ContainsFunc(a.changes, func(o catalog.Change) bool { return o.Member() == other.Member() })
			if r.Digest == c.Release.Digest && r.Withdrawn != nil && !isKnown {
				other.Release.Withdrawn, other.Release.Op = nil, ""
				a.changes = append(a.changes, other)
			}
		}
	}
}

// gatherSets gathers the members of the sets: those that changes name or are, and for an add those that
// the channel lists, and the former ones.
func (a *asked) gatherSets(state catalog.State, former map[string][]string) {
	if a.do == catalog.ActionWithdraw {
		return
	}
	for _, c := range a.changes {
		if set := c.Release.Set; set != "" && (a.do == catalog.ActionAdd || len(c.Release.Members) > 0) {
			a.sets[set] = append(append(a.sets[set], c.Member()), c.Release.Members...)
		}
	}
	for image, page := range state.Pages {
		for _, r := range page.Releases {
			if _, is := a.sets[r.Set]; is && a.do == catalog.ActionAdd && r.Set != "" {
				a.sets[r.Set] = append(append(a.sets[r.Set], catalog.Member(image, r.Tag)), r.Members...)
			}
		}
	}
	for set, members := range a.sets {
		members = append(members, former[set]...)
		slices.Sort(members)
		a.sets[set] = slices.Compact(members)
	}
}

// movesSet reports whether an add gives a set to a listed release for which an op of add does nothing.
func movesSet(state catalog.State, c catalog.Change) bool {
	is := find(state.Pages[c.Image], c.Release.Tag)
	return is != nil && is.Digest == c.Release.Digest && is.Withdrawn == nil && c.Release.Set != "" &&
		(is.Op != "" || is.Set != "" && is.Set != c.Release.Set)
}

// promoteListed turns an add into a promote that changes only the sets of listed releases.
func (a *asked) promoteListed(state catalog.State) {
	a.do = catalog.ActionPromote
	var changes []catalog.Change
	for _, c := range a.changes {
		is := find(state.Pages[c.Image], c.Release.Tag)
		switch {
		case is == nil || is.Digest != c.Release.Digest:
		case is.Withdrawn != nil:
			a.left = append(a.left, Outcome{
				Image: c.Image, Tag: c.Release.Tag, Digest: c.Release.Digest, Note: "withdrawn: " + is.Withdrawn.Reason,
			})
			continue
		case c.Release.Set == "":
			a.left = append(a.left, Outcome{
				Image: c.Image, Tag: c.Release.Tag, Digest: c.Release.Digest, Note: "listed already",
			})
			continue
		default:
			set := c.Release.Set
			c.Release = *is
			c.Release.Set, c.Release.Op = set, ""
		}
		changes = append(changes, c)
	}
	a.changes = changes
}

// ops divides changes into ops as large as they may be. A set is never divided.
func (a *asked) ops(op catalog.Op, changes []catalog.Change, newTag func(last string) string) []catalog.Op {
	changes = slices.Clone(changes)
	slices.SortStableFunc(changes, func(x, y catalog.Change) int { return strings.Compare(x.Release.Set, y.Release.Set) })
	var out []catalog.Op
	for len(changes) > 0 {
		end := firstSet(changes)
		for end < len(changes) && end+firstSet(changes[end:]) <= catalog.MaxChanges {
			end += firstSet(changes[end:])
		}
		one := op
		one.Do, one.Changes, one.Sets = a.do, changes[:end], map[string][]string{}
		for _, c := range one.Changes {
			if members, is := a.sets[c.Release.Set]; is {
				one.Sets[c.Release.Set] = members
			}
		}
		if len(out) > 0 {
			one.Tag = newTag(out[len(out)-1].Tag)
		}
		out, changes = append(out, one), changes[end:]
	}
	return out
}

// firstSet returns how many of the first changes are of one set; those of no set are each for itself.
func firstSet(changes []catalog.Change) int {
	set := changes[0].Release.Set
	if set == "" {
		return 1
	}
	end := slices.IndexFunc(changes, func(c catalog.Change) bool { return c.Release.Set != set })
	if end < 0 {
		return len(changes)
	}
	return end
}
