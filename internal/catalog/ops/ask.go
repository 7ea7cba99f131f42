// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// Want is a requested change of a channel.
type Want struct {
	Do      catalog.Action
	Changes []catalog.Change
	Again   bool // of promote: offer also what is withdrawn
	// Former are, by set, the members of extended sets that no page lists.
	Former map[string][]string
}

// Refused is why a want cannot be met.
type Refused struct {
	Change catalog.Change
	Why    string
	Again  bool // promote with Again would offer it
}

func (r *Refused) Error() string { return r.Change.Member() + ": " + r.Why }

// Note is the result for a release.
type Note struct {
	Image   string        `json:"image"`
	Tag     string        `json:"tag"`
	Digest  digest.Digest `json:"digest"`
	Changed bool          `json:"changed"` // the channel lists it differently
	// Withdrawn: the channel does not offer it any more. If Changed, this request withdrew it, or changed its advisory.
	Withdrawn bool   `json:"withdrawn,omitempty"`
	Skipped   bool   `json:"skipped,omitempty"` // left out for the reason in Note
	Note      string `json:"note,omitempty"`
	// Steered: the channel offered it before, and only its set, its rollout or its advisory changed.
	Steered bool `json:"-"`
}

// Draft has the ops that give a channel what somebody wants.
type Draft struct {
	Ops      []catalog.Op // with neither tag nor turn; none: nothing is to be done
	Outcomes []Note       // one for each release
}

// Ask compares a want with the content of its channel, which has the pages of its images; of an add to sets, also those
// of all images that have or had releases of them.
// An error that is no *Refused is a *catalog.Error of conflicts.
func Ask(s State, channel string, w Want) (Draft, error) {
	a := asking{do: w.Do, sets: map[string]map[string]bool{}, stays: map[string]bool{}, state: s}
	for _, c := range w.Changes {
		left, err := take(s, channel, w, c)
		if err != nil {
			return Draft{}, err
		}
		if left != "" {
			a.left = append(a.left, noteOf(c, left))
			continue
		}
		a.changes = append(a.changes, c)
	}
	if w.Again {
		a.offerAgain()
	}
	a.gatherSets(w.Former)
	if w.Do == catalog.ActionAdd && slices.ContainsFunc(a.changes, a.movesSet) {
		a.promoteListed()
	}
	for n := range a.changes {
		a.ownOnly(&a.changes[n])
	}
	op := catalog.Op{Do: a.do, Again: w.Again, Changes: a.changes, Sets: a.members()}
	op.Tag, op.Turn = "~", Next(s.Times)
	next, folded := Fold(s, op)
	effective, notes, err := sift(a.do, a.changes, s, next, folded)
	if err != nil {
		return Draft{}, err
	}
	for n, note := range notes {
		if a.stays[catalog.Member(note.Image, note.Tag)] {
			notes[n].Note = joinNotes(note.Note, "the channel already has another note")
		}
	}
	op.Tag, op.Turn = "", 0
	return Draft{divide(op, effective), slices.Concat(notes, a.left)}, nil
}

// ownOnly leaves in a change what its op asks for: the op has the members of sets once, and an advisory that is listed
// is changed by a note only.
func (a *asking) ownOnly(c *catalog.Change) {
	r := &c.Release
	r.Members, r.Op, r.Turn, r.Again = nil, "", 0, nil
	is := Find(a.state.Pages[c.Image], r.Tag)
	switch {
	case r.Advisory == nil:
	case a.do != catalog.ActionNote && r.Advisory.IsSame(nil):
		r.Advisory = nil
	case a.do != catalog.ActionNote && is != nil && is.Advisory != nil:
		a.stays[c.Member()] = !r.Advisory.IsSame(is.Advisory)
		r.Advisory = nil
	case r.Advisory.Op != "":
		plain := *r.Advisory
		plain.Mark, r.Advisory = catalog.Mark{}, &plain
	}
}

// asking is the state of Ask.
type asking struct {
	do      catalog.Action
	state   State
	changes []catalog.Change
	sets    map[string]map[string]bool // the members of the sets of changes
	last    map[string][]string        // the members that were taken last: releases of a set share the list
	left    []Note                     // changes with nothing to do
	stays   map[string]bool            // members that have another advisory already
}

func noteOf(c catalog.Change, text string) Note {
	return Note{Image: c.Image, Tag: c.Release.Tag, Digest: c.Release.Digest, Note: text}
}

// take returns why there is nothing to do for a change; "": there is. It refuses to offer a withdrawn release.
func take(s State, channel string, w Want, c catalog.Change) (left string, err error) {
	page := s.Pages[c.Image]
	why := WithdrawnFrom(channel, page, c.Release)
	switch {
	case why == "":
	case w.Do == catalog.ActionPromote && !w.Again:
		return "", &Refused{c, why, true}
	case w.Do == catalog.ActionAdd && c.Release.Set != "":
		return "", &Refused{c, why + ": it cannot be in a set", false}
	case w.Do == catalog.ActionAdd && Find(page, c.Release.Tag) == nil:
		return why, nil // another tag of a digest that is withdrawn
	}
	return "", nil
}

// WithdrawnFrom says that a channel has withdrawn a release, under any tag, or another one under its tag; "": it has
// not.
func WithdrawnFrom(channel string, page catalog.Page, r catalog.Release) string {
	is := WithdrawnAs(page, r.Tag, r.Digest)
	if is == nil {
		return ""
	}
	as := ""
	if is.Tag != r.Tag {
		as = " as " + is.Tag
	} else if is.Digest != r.Digest {
		as = " as " + string(is.Digest)
	}
	return fmt.Sprintf("withdrawn from %s%s: %s", channel, as, is.Withdrawn.Reason)
}

// offerAgain adds the other withdrawn tags of the digests that are offered again.
func (a *asking) offerAgain() {
	all := WithSameDigest(a.changes, a.state.Pages)
	for _, other := range all[len(a.changes):] {
		if other.Release.Withdrawn != nil {
			other.Release.Withdrawn = nil
			a.changes = append(a.changes, other)
		}
	}
}

// WithSameDigest returns changes, and behind them the releases that pages list for their digests under other tags:
// nodes compare digests.
func WithSameDigest(changes []catalog.Change, pages map[string]catalog.Page) []catalog.Change {
	out, known := slices.Clone(changes), map[string]bool{}
	for _, c := range changes {
		known[c.Member()] = true
	}
	for _, c := range changes {
		for _, r := range pages[c.Image].Releases {
			other := catalog.Change{Image: c.Image, Release: r}
			if r.Digest == c.Release.Digest && !known[other.Member()] {
				known[other.Member()] = true
				out = append(out, other)
			}
		}
	}
	return out
}

// gatherSets gathers the members of the sets: those that changes name or are, and for an add those that the channel
// lists, and the former ones.
func (a *asking) gatherSets(former map[string][]string) {
	if a.do == catalog.ActionWithdraw || a.do == catalog.ActionNote {
		return
	}
	a.last, former = map[string][]string{}, maps.Clone(former)
	for _, c := range a.changes {
		set := c.Release.Set
		if set == "" || a.do != catalog.ActionAdd && len(c.Release.Members) == 0 {
			continue
		}
		if a.sets[set] == nil {
			a.sets[set] = map[string]bool{}
		}
		for _, member := range former[set] {
			a.sets[set][member] = true
		}
		delete(former, set)
		a.takeMember(c.Image, c.Release)
	}
	if a.do != catalog.ActionAdd || len(a.sets) == 0 {
		return
	}
	for image, page := range a.state.Pages {
		for _, r := range page.Releases {
			if a.sets[r.Set] != nil {
				a.takeMember(image, r)
			}
		}
	}
}

// takeMember adds a release to its set, and the members that it names.
func (a *asking) takeMember(image string, r catalog.Release) {
	set := a.sets[r.Set]
	set[catalog.Member(image, r.Tag)] = true
	if IsShared(a.last[r.Set], r.Members) {
		return
	}
	for _, member := range r.Members {
		set[member] = true
	}
	a.last[r.Set] = r.Members
}

// IsShared reports whether two lists are one; see catalog.Codec.
func IsShared(a, b []string) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// members returns the members of the sets, sorted.
func (a *asking) members() map[string][]string {
	out := map[string][]string{}
	for set, members := range a.sets {
		out[set] = slices.Sorted(maps.Keys(members))
	}
	return out
}

// movesSet reports whether an add gives a set to a listed release for which an op of add does nothing.
func (a *asking) movesSet(c catalog.Change) bool {
	is := Find(a.state.Pages[c.Image], c.Release.Tag)
	return is != nil && is.Digest == c.Release.Digest && is.Withdrawn == nil && c.Release.Set != "" &&
		(is.Op != "" || is.Set != "" && is.Set != c.Release.Set)
}

// promoteListed turns an add into a promote that changes only the sets of listed releases.
func (a *asking) promoteListed() {
	a.do = catalog.ActionPromote
	var changes []catalog.Change
	for _, c := range a.changes {
		is := Find(a.state.Pages[c.Image], c.Release.Tag)
		switch {
		case is == nil || is.Digest != c.Release.Digest:
		case is.Withdrawn != nil:
			a.left = append(a.left, noteOf(c, "withdrawn: "+is.Withdrawn.Reason))
			continue
		case c.Release.Set == "" && (c.Release.Advisory == nil || is.Advisory != nil):
			a.left = append(a.left, noteOf(c, "listed already"))
			continue
		default:
			want := c.Release
			c.Release = *is
			c.Release.Set, c.Release.Advisory = cmp.Or(want.Set, is.Set), want.Advisory
		}
		changes = append(changes, c)
	}
	a.changes = changes
}

// sift returns the changes that have an effect, and a note for each. The error names all conflicts.
func sift(
	do catalog.Action, changes []catalog.Change, before, after State, folded []Outcome,
) ([]catalog.Change, []Note, error) {
	var effective []catalog.Change
	var notes []Note
	var conflicts []string
	was, is := indexOf(before.Pages, changes), indexOf(after.Pages, changes)
	for n, f := range folded {
		c := changes[n]
		note := noteOf(c, "")
		was, is := was[c.Member()], is[c.Member()]
		note.Withdrawn = is != nil && is.Withdrawn != nil
		switch {
		case f.Err != nil:
			conflicts = append(conflicts, f.Err.Error())
		case is == nil:
			note.Note = "older than the releases that the page keeps"
		case f.Changed && was != nil && IsSame(*was, *is):
			note.Note = "listed with the same set and rollout already"
		case f.Changed:
			effective = append(effective, c)
			note.Changed = true
			note.say(do, after.Pages[c.Image], was, is)
		case do == catalog.ActionNote:
			note.Note = "noted already"
		case was != nil && was.Withdrawn != nil:
			note.Note = "withdrawn: " + was.Withdrawn.Reason
		case do == catalog.ActionAdd && is.Set != c.Release.Set:
			note.Note = "listed already, in " + SetName(is.Set)
		default:
			note.Note = "listed already"
		}
		notes = append(notes, note)
	}
	if len(conflicts) > 0 {
		return nil, nil, catalog.NewError(catalog.KindConflict, "%s", strings.Join(conflicts, "; "))
	}
	return effective, notes, nil
}

// indexOf returns the releases of pages that changes are about, by member.
func indexOf(pages map[string]catalog.Page, changes []catalog.Change) map[string]*catalog.Release {
	out, seen := map[string]*catalog.Release{}, map[string]bool{}
	for _, c := range changes {
		if seen[c.Image] {
			continue
		}
		seen[c.Image] = true
		for n, r := range pages[c.Image].Releases {
			out[catalog.Member(c.Image, r.Tag)] = &pages[c.Image].Releases[n]
		}
	}
	return out
}

// say says what became of a release that has changed.
func (n *Note) say(do catalog.Action, page catalog.Page, was, is *catalog.Release) {
	if do == catalog.ActionPromote {
		// Nodes have a newer release to choose.
		if top := Newest(page); top != nil && top.Tag != is.Tag {
			n.Note = "older than " + top.Tag + ", which the channel offers too"
		}
		if was != nil && was.Withdrawn == nil && is.Withdrawn == nil {
			n.Steered, n.Note = true, joinNotes(Steered(*was, *is), n.Note)
		}
	}
	if do == catalog.ActionAdd && was != nil {
		n.Note = "listed already"
		if was.Set != is.Set {
			n.Note += ", in " + SetName(was.Set) + ", and now in " + SetName(is.Set)
		}
		n.Note = joinNotes(n.Note, noted(*was, *is))
	}
	if do == catalog.ActionNote {
		n.Steered, n.Note = true, noted(*was, *is)
		return
	}
	if n.Withdrawn {
		n.Note = "withdrawn: " + is.Withdrawn.Reason
	}
}

// Steered says what has changed of a release that stays as it is; "": nothing.
func Steered(was, is catalog.Release) string {
	set := ""
	if was.Set != is.Set {
		set = "now in " + SetName(is.Set)
	}
	return joinNotes(set, rolloutNote(was.Rollout, is.Rollout), noted(was, is))
}

// noted says what is noted about a release now; "": nothing new.
func noted(was, is catalog.Release) string {
	switch {
	case is.Advisory.IsSame(was.Advisory):
		return ""
	case is.Advisory.IsSame(nil):
		return "note removed"
	}
	return "noted: " + is.Advisory.String()
}

// divide divides the changes of an op into ops as large as they may be. A set is never divided.
func divide(op catalog.Op, changes []catalog.Change) []catalog.Op {
	changes = slices.Clone(changes)
	slices.SortStableFunc(changes, func(x, y catalog.Change) int { return strings.Compare(x.Release.Set, y.Release.Set) })
	var out []catalog.Op
	for len(changes) > 0 {
		end := firstSet(changes)
		size := advisories(changes[:end])
		for end < len(changes) {
			more := firstSet(changes[end:])
			size += advisories(changes[end : end+more])
			if end+more > catalog.MaxChanges || size > maxAdvisories {
				break
			}
			end += more
		}
		one := op
		one.Changes, one.Sets = changes[:end], map[string][]string{}
		for _, c := range one.Changes {
			if members, is := op.Sets[c.Release.Set]; is {
				one.Sets[c.Release.Set] = members
			}
		}
		out, changes = append(out, one), changes[end:]
	}
	return out
}

// maxAdvisories is how many bytes the advisories of an op may have, if it can be divided.
const maxAdvisories = 256 << 10

// advisories returns how many bytes the advisories of changes have.
func advisories(changes []catalog.Change) (size int) {
	for _, c := range changes {
		size += len(c.Release.Advisory.String())
	}
	return size
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
