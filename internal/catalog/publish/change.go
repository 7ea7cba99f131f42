// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/store"
)

// Request is a change of a channel.
type Request struct {
	Channel string
	Do      catalog.Action // empty: only fold what waits
	Changes []catalog.Change
	// Again are releases to promote in the same version, also withdrawn ones.
	Again   []catalog.Change
	Expires time.Time // of refresh
	Until   time.Time // of freeze; zero: the channel is not frozen any more
	Reason  string    // for the log
	New     bool      // the channel may not exist yet
	DryRun  bool
	Out     string // write the next version into this directory, to be signed elsewhere
	// Withdrawn has promote offer withdrawn releases again; otherwise promote refuses them.
	Withdrawn bool
	// Frozen allows the change although the channel is frozen: it makes nodes apply less, not more.
	Frozen bool
	// Skipped are releases that were left out of the changes. The result names them.
	Skipped []Outcome
}

// Change changes a channel. It refuses a conflict before anything is written. A change that the
// channel has already, or that its page would not keep, is no error, and an outcome says so.
func (p *Publisher) Change(ctx context.Context, r Request) (Result, error) {
	base, tags, err := p.before(ctx, r)
	if err != nil {
		return Result{}, err
	}
	if err := p.checkFrozen(r, base); err != nil {
		return Result{}, err
	}
	ops, outcomes, err := p.plan(ctx, r, base, tags)
	if err != nil {
		return Result{}, err
	}
	switch {
	case r.Out != "":
		return p.writeOut(ctx, r, ops, outcomes)
	case r.DryRun:
		d, err := p.prepare(ctx, r.Channel, r.New, ops...)
		return d.planned(outcomes, len(ops) > 0), err
	}
	if err := p.checkMayWrite(ctx, base); err != nil {
		return Result{}, err
	}
	if base.Digest == "" {
		if err := p.checkMovable(ctx, r.Channel); err != nil {
			return Result{}, err
		}
	}
	for _, op := range ops {
		p.step("storing %s", op.Tag)
		if err := p.putOp(ctx, op); err != nil {
			return Result{}, err
		}
	}
	d, err := p.mergeOwn(ctx, r, ops)
	if err != nil {
		return Result{}, err
	}
	return d.published(outcomes, len(ops) > 0 || d.base.Digest != base.Digest), nil
}

// checkFrozen refuses to add and to promote while the channel is frozen. What another publisher has begun before may
// still come.
func (p *Publisher) checkFrozen(r Request, base Version) error {
	brings := r.Do == catalog.ActionAdd || r.Do == catalog.ActionPromote
	if brings && !r.Frozen && p.now().Before(base.Frozen) {
		return refuse(KindFrozen, r.Channel, "the channel is frozen until %s", base.Frozen.Format(time.RFC3339))
	}
	return nil
}

// before reads the channel and the list of tags.
func (p *Publisher) before(ctx context.Context, r Request) (Version, []string, error) {
	base, err := p.Read(ctx, r.Channel)
	if r.New && isKind(err, KindChannel) {
		base, err = Version{}, nil
	} else if err == nil && r.New {
		err = refuse(KindExists, r.Channel, "the channel exists already, at version %d", base.Version)
	}
	if err != nil {
		return Version{}, nil, err
	}
	tags, err := p.listed(ctx, base, r.Channel)
	return base, tags, err
}

// plan returns the ops that a request needs, and the outcome of each change.
func (p *Publisher) plan(
	ctx context.Context, r Request, base Version, tags []string,
) ([]catalog.Op, []Outcome, error) {
	last := newestOp(r.Channel, base, tags)
	ops, outcomes, err := p.planPart(ctx, r, base, tags, last)
	if err != nil || len(r.Again) == 0 {
		return ops, outcomes, err
	}
	for _, op := range ops {
		last = op.Tag
	}
	again := Request{
		Channel: r.Channel, Do: catalog.ActionPromote, Changes: r.Again, Withdrawn: true, Reason: r.Reason,
	}
	more, also, err := p.planPart(ctx, again, base, tags, last)
	return append(ops, more...), append(outcomes, also...), err
}

// planPart returns the ops of one action. Ops that wait count as if they were folded already.
func (p *Publisher) planPart(
	ctx context.Context, r Request, base Version, tags []string, last string,
) ([]catalog.Op, []Outcome, error) {
	state, waiting, err := p.upcoming(ctx, r, base, tags)
	if err != nil {
		return nil, nil, err
	}
	former, err := p.former(ctx, r, base, state, waiting)
	if err != nil {
		return nil, nil, err
	}
	a, err := ask(r, state, former)
	if err != nil {
		return nil, nil, err
	}
	newTag := func(last string) string { return catalog.NewOpTag(r.Channel, p.now(), last) }
	op := catalog.Op{
		Tag: newTag(last), Name: p.name, Channel: r.Channel,
		Do: a.do, Changes: a.changes, Expires: r.Expires, Until: r.Until, Sets: a.sets,
		By: p.by, Run: p.run, Reason: r.Reason,
	}
	next, folded := catalog.Fold(state, op)
	effective, outcomes, err := sift(r, a.changes, state, next, folded)
	outcomes = slices.Concat(outcomes, a.left, r.Skipped)
	switch {
	case err != nil, r.Do == "", p.isFreezeAsItIs(r, state):
		return nil, outcomes, err
	case r.Do == catalog.ActionRefresh, r.Do == catalog.ActionFreeze:
		return []catalog.Op{op}, outcomes, nil
	}
	ops := a.ops(op, effective, newTag)
	for _, op := range ops { // before the first one is stored
		if _, err := op.Encode(); err != nil {
			return nil, outcomes, &Error{Kind: KindInput, Object: r.Channel, Text: "the op is not valid", Err: err}
		}
	}
	return ops, outcomes, nil
}

// isFreezeAsItIs reports whether a request freezes a channel until the time until which it is frozen, or ends a freeze
// that is over.
func (p *Publisher) isFreezeAsItIs(r Request, is catalog.State) bool {
	return r.Do == catalog.ActionFreeze && (r.Until.Equal(is.Frozen) || r.Until.IsZero() && !p.now().Before(is.Frozen))
}

// upcoming returns the content of a channel with the ops that wait folded in, and these ops: of the images of a
// request, or of all where a set is added to.
func (p *Publisher) upcoming(
	ctx context.Context, r Request, base Version, tags []string,
) (catalog.State, []catalog.Op, error) {
	merged, err := p.mergedOps(ctx, base)
	if err != nil {
		return catalog.State{}, nil, err
	}
	ops, _, err := p.readOps(ctx, pendingOps(r.Channel, tags, merged))
	if err != nil {
		return catalog.State{}, nil, err
	}
	state, err := p.state(ctx, base, append(slices.Clone(ops), catalog.Op{Changes: r.Changes})...)
	hasSet := slices.ContainsFunc(r.Changes, func(c catalog.Change) bool { return c.Release.Set != "" })
	if err == nil && r.Do == catalog.ActionAdd && hasSet {
		state.Pages, err = p.Pages(ctx, base)
	}
	if err != nil {
		return catalog.State{}, nil, err
	}
	state, _ = catalog.Fold(state, ops...)
	return state, ops, nil
}

// pendingOps returns the ops of a channel that it has not folded.
func pendingOps(channel string, tags, merged []string) []string {
	state := catalog.State{Merged: merged}
	return slices.DeleteFunc(slices.Clone(tags), func(tag string) bool {
		of, ok := catalog.OpChannel(tag)
		return !ok || of != channel || state.IsMerged(tag)
	})
}

// newestOp returns the tag of a channel's newest op that is known.
func newestOp(channel string, base Version, tags []string) string {
	last := max(base.Refreshed, base.Freeze)
	for _, tag := range slices.Concat(tags, base.Merged) {
		if of, ok := catalog.OpChannel(tag); ok && of == channel {
			last = max(last, tag)
		}
	}
	return last
}

// sift returns the changes that have an effect, and the outcome of each change. The error names all
// conflicts.
func sift(
	r Request, changes []catalog.Change, before, after catalog.State, folded []catalog.Outcome,
) ([]catalog.Change, []Outcome, error) {
	var effective []catalog.Change
	outcomes := []Outcome{}
	var conflicts []string
	for n, f := range folded {
		c := changes[n]
		o := Outcome{Image: f.Image, Tag: f.Tag, Digest: c.Release.Digest, Changed: f.Changed}
		is := find(after.Pages[f.Image], f.Tag)
		o.Withdrawn = is != nil && is.Withdrawn != nil
		switch was := find(before.Pages[f.Image], f.Tag); {
		case f.Err != nil:
			conflicts = append(conflicts, f.Err.Error())
		case is == nil:
			o.Changed, o.Note = false, "older than the releases that the page keeps"
		case f.Changed && was != nil && isSame(*was, *is):
			o.Changed, o.Note = false, "listed with the same set and rollout already"
		case f.Changed:
			effective = append(effective, c)
			o.Note = overtaken(r, after.Pages[f.Image], f.Tag)
			if was != nil && was.Withdrawn == nil && is.Withdrawn == nil && r.Do == catalog.ActionPromote {
				o.Steered, o.Note = true, joined(steeredNote(*was, *is), o.Note)
			}
			if r.Do == catalog.ActionAdd && was != nil {
				o.Note = "listed already, in " + setName(was.Set) + ", and now in " + setName(is.Set)
			}
			if o.Withdrawn {
				o.Note = "withdrawn: " + is.Withdrawn.Reason
			}
		case was != nil && was.Withdrawn != nil:
			o.Note = "withdrawn: " + was.Withdrawn.Reason
		case r.Do == catalog.ActionAdd && is.Set != c.Release.Set:
			o.Note = "listed already, in " + setName(is.Set)
		default:
			o.Note = "listed already"
		}
		outcomes = append(outcomes, o)
	}
	if len(conflicts) > 0 {
		return nil, nil, refuse(KindDigest, r.Channel, "%s", strings.Join(conflicts, "; "))
	}
	return effective, outcomes, nil
}

// steeredNote says what became of the set and the rollout of a release.
func steeredNote(was, is catalog.Release) string {
	set := ""
	if was.Set != is.Set {
		set = "now in " + setName(is.Set)
	}
	return joined(set, rolloutNote(was.Rollout, is.Rollout))
}

// rolloutNote says what became of a rollout; "": nothing.
func rolloutNote(was, is *catalog.Rollout) string {
	switch {
	case was == nil && is == nil, was != nil && is != nil && isEqual(*was, *is):
		return ""
	case is == nil:
		return "rollout ended: all nodes may apply it"
	case is.Paused == nil:
		return fmt.Sprintf("rollout over %d hours", is.Hours)
	case was != nil && was.Hours != is.Hours:
		return fmt.Sprintf("rollout over %d hours, paused", is.Hours)
	}
	return "rollout paused"
}

// joined joins the notes that are not empty.
func joined(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(note string) bool { return note == "" }), "; ")
}

// isSame reports whether releases differ in nothing but the op that changed them last.
func isSame(a, b catalog.Release) bool {
	a.Op, b.Op = "", ""
	return isEqual(a, b)
}

func isEqual[T any](a, b T) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// overtaken says that nodes have a newer release to choose.
func overtaken(r Request, p catalog.Page, tag string) string {
	if top := newest(p); r.Do == catalog.ActionPromote && top != nil && top.Tag != tag {
		return "older than " + top.Tag + ", which the channel offers too"
	}
	return ""
}

func setName(set string) string {
	if set == "" {
		return "no set"
	}
	return fmt.Sprintf("set %q", set)
}

// find returns the release of a tag; nil if the page does not list it.
func find(p catalog.Page, tag string) *catalog.Release {
	at := slices.IndexFunc(p.Releases, func(r catalog.Release) bool { return r.Tag == tag })
	if at < 0 {
		return nil
	}
	return &p.Releases[at]
}

// mergeOwn publishes until the channel has the changes of these ops.
func (p *Publisher) mergeOwn(ctx context.Context, r Request, ops []catalog.Op) (draft, error) {
	if len(ops) > 0 {
		if err := p.awaitListed(ctx, r.Channel, ops); err != nil {
			return draft{}, err
		}
	}
	for attempt := 1; ; attempt++ {
		d, err := p.merge(ctx, r.Channel, r.New, ops...)
		if err != nil {
			return d, err
		}
		lost, err := p.lost(ctx, d.base, ops)
		switch {
		case err != nil:
			return d, err
		case len(lost) == 0:
			return d, p.confirm(ctx, d.base, ops)
		case attempt == store.MaxAttempts: // it is in the list of tags again and again, or not
			return d, refuse(KindTimeout, lost[0].Tag, "stored, but still not in the channel")
		}
		for _, op := range lost { // another publisher has deleted it
			if err := p.putOp(ctx, op); err != nil {
				return d, err
			}
		}
		if err := store.BackOff(ctx, attempt); err != nil {
			return d, err
		}
	}
}

// lost returns those of the ops that a version does not have: it names them not, and folding them
// would change it. An op that was folded may be deleted, and then no version names it.
func (p *Publisher) lost(ctx context.Context, v Version, ops []catalog.Op) ([]catalog.Op, error) {
	merged, err := p.mergedOps(ctx, v)
	if err != nil {
		return nil, err
	}
	var out []catalog.Op
	for _, op := range ops {
		if slices.Contains(merged, op.Tag) {
			continue
		}
		before, err := p.state(ctx, v, op)
		if err != nil {
			return nil, err
		}
		after, _ := catalog.Fold(before, op)
		if after.Refreshed != before.Refreshed || after.Freeze != before.Freeze ||
			!maps.EqualFunc(after.Pages, before.Pages, isSamePage) {
			out = append(out, op)
		}
	}
	return out, nil
}

// state returns the content of a version, with the pages that these ops are about.
func (p *Publisher) state(ctx context.Context, v Version, ops ...catalog.Op) (catalog.State, error) {
	images := []string{}
	for _, op := range ops {
		for _, c := range op.Changes {
			images = append(images, c.Image)
		}
	}
	slices.Sort(images)
	pages, err := p.Pages(ctx, v, slices.Compact(images)...)
	state := stateOf(v)
	state.Pages = pages
	return state, err
}

// stateOf returns the content of a version without its pages and ops.
func stateOf(v Version) catalog.State {
	return catalog.State{Expires: v.Expires, Refreshed: v.Refreshed, Frozen: v.Frozen, Freeze: v.Freeze}
}

func isSamePage(a, b catalog.Page) bool { return slices.EqualFunc(a.Releases, b.Releases, isEqual) }

// confirm returns the conflict that another publisher has made in the meantime.
func (p *Publisher) confirm(ctx context.Context, v Version, ops []catalog.Op) error {
	state, err := p.state(ctx, v, ops...)
	if err != nil {
		return err
	}
	_, folded := catalog.Fold(state, ops...)
	for _, op := range ops {
		for _, c := range op.Changes {
			is := find(state.Pages[c.Image], c.Release.Tag)
			if op.Do == catalog.ActionAdd && c.Release.Set != "" && is != nil && is.Op == "" && is.Set != c.Release.Set {
				return refuse(KindRaced, c.Member(), "another publisher has put it into %s at the same time", setName(is.Set))
			}
		}
	}
	for _, f := range folded {
		if f.Err != nil {
			return &Error{Kind: KindDigest, Object: v.Channel, Text: "refused", Err: f.Err}
		}
	}
	return nil
}
