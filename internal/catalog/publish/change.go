// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
	"github.com/kubic-project/image-update-agent/internal/catalog/store"
)

const (
	// changeTime is how long a change may take, rounds how often it publishes at most, and asks how often it is asked
	// for again because another one came in between.
	changeTime = 30 * time.Minute
	rounds     = 24
	asks       = 3
	// maxPatience is how often a publisher waits for another one to fold its op, or to name the channel after a version.
	maxPatience = 3
)

// Verb drafts a requested change of a channel, or returns why not.
type Verb func(ctx context.Context, v *View) (Draft, error)

// Draft is a change asked of a channel.
type Draft = ops.Draft

// How says how a change is made.
type How struct {
	New    bool // the channel may not exist yet
	DryRun bool
	Out    string // write the next version into this directory, to be signed elsewhere
	Reason string // for the log
}

// Change changes a channel. It stores nothing unless the verb drafts something, and it reports as done what a later
// reader finds in the channel. If another publisher has asked for something else at the same time, it asks again, and
// then names what does not hold.
func (p *Publisher) Change(ctx context.Context, channel string, do Verb, how How) (Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, changeTime,
		refuse(KindTimeout, channel, "not done within %s", changeTime))
	defer cancel()
	c := &change{p: p, channel: channel, how: how, do: do, own: map[string]bool{}}
	if p.base != 0 {
		c.base = &base{version: p.base}
	}
	got, err := c.run(ctx)
	if late, ok := errors.AsType[*Error](context.Cause(ctx)); ok && err != nil {
		return got, late
	}
	return got, err
}

// change is one change of a channel.
type change struct {
	p       *Publisher
	channel string
	how     How
	do      Verb
	keys    keys
	base    *base
	first   *View           // as the channel was
	own     map[string]bool // ops that were stored, by tag
	// outcomes are those of the first draft: the next ones are of what another publisher has changed meanwhile.
	outcomes []Outcome
}

func (c *change) run(ctx context.Context) (got Result, err error) {
	if c.keys, err = c.p.keysOf(c.channel); err != nil {
		return Result{}, err
	}
	for attempt := 1; ; attempt++ {
		got, again, err := c.ask(ctx, attempt == 1)
		if !again || attempt == asks {
			return got, err
		}
	}
}

// ask asks for the change once; again: another publisher has asked for something else at the same time.
func (c *change) ask(ctx context.Context, isFirst bool) (got Result, again bool, err error) {
	v, err := c.view(ctx)
	if err != nil {
		return Result{}, false, err
	}
	if isFirst {
		if c.first = v; c.how.New && v.Digest != "" {
			return got, false, refuse(KindExists, c.channel, "the channel exists already, at version %d", v.Version.Version)
		}
	}
	d, err := c.do(ctx, v)
	if err != nil {
		return Result{}, false, err
	}
	own, err := c.sealed(ctx, v, d)
	if err != nil {
		return Result{}, false, err
	}
	if isFirst {
		c.outcomes = d.Outcomes
		if v.head != v.Digest {
			left, err := c.p.leftOut(ctx, v.Version, v.head, v.tags, v.with(own).Pages)
			if err != nil {
				return Result{}, false, err
			}
			c.outcomes = slices.Concat(c.outcomes, left)
		}
	}
	if c.how.Out != "" || c.how.DryRun {
		got, err = c.plan(ctx, v, own)
		return got, false, err
	}
	last, losses, err := c.store(ctx, v, own)
	if err != nil {
		return Result{}, false, err
	}
	got, err = c.result(ctx, last, losses)
	again = slices.ContainsFunc(losses, func(l ops.Loss) bool { return !l.Final })
	return got, again, err
}

// view reads the channel. It begins again if another publisher publishes meanwhile.
func (c *change) view(ctx context.Context) (*View, error) {
	for attempt := 1; ; attempt++ {
		v, err := c.p.view(ctx, c.channel, c.keys, c.how.New, c.base)
		if !errors.Is(err, errMoved) || attempt == store.MaxAttempts {
			return v, err
		}
		if err := store.BackOff(ctx, attempt); err != nil {
			return v, err
		}
	}
}

// sealed returns the ops of a draft with their tags and turns, and checks them before the first one is stored.
func (c *change) sealed(ctx context.Context, v *View, d Draft) ([]catalog.Op, error) {
	if len(d.Ops) == 0 {
		return nil, nil
	}
	p, now, turn := c.p, c.p.now(), ops.Next(v.Times, v.Pending...)
	is, err := v.content(ctx, []string{}...)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(d.Ops)
	for n := range out {
		op := &out[n]
		op.Name, op.Channel, op.Turn = p.name, c.channel, turn+uint64(n)
		op.Tag = catalog.NewOpTag(c.channel, now)
		op.By, op.Run = p.by, p.run
		if op.Reason == "" {
			op.Reason = c.how.Reason
		}
		if ops.Brings(*op) && ops.IsFrozen(is.Times, now) {
			return nil, refuse(KindFrozen, c.channel, "the channel is frozen until %s", is.Frozen.Format(time.RFC3339))
		}
		if _, err := op.Encode(); err != nil {
			return nil, &Error{Kind: KindInput, Object: c.channel, Text: "the op is not valid", Err: err}
		}
	}
	return out, nil
}

// plan returns the version that would come, or writes it into a directory.
func (c *change) plan(ctx context.Context, v *View, own []catalog.Op) (Result, error) {
	d, err := c.p.draft(ctx, v, own...)
	if err != nil {
		return Result{}, err
	}
	for _, op := range own {
		c.own[op.Tag] = true
	}
	got := Result{Channel: c.channel, Outcomes: c.outcomes, Waiting: v.Waiting, Others: othersOf(d.entries(), c.own)}
	if d.isEmpty() {
		return got.at(v.Version), nil
	}
	got.Changed = true
	got = got.at(Version{Manifest: d.manifest})
	if c.how.Out != "" && !c.how.DryRun {
		got.Digest, err = c.p.writeOut(d, c.how.Out)
	}
	return got, err
}

// store stores ops, and publishes until the channel has them and all that waited before. It returns the channel as it
// is then, and what of the ops does not hold in it.
func (c *change) store(ctx context.Context, v *View, own []catalog.Op) (*View, []ops.Loss, error) {
	if err := c.p.checkMayWrite(ctx, v); err != nil {
		return nil, nil, err
	}
	if err := c.p.checkClock(); err != nil {
		return nil, nil, err
	}
	if v.Digest == "" && v.head == "" {
		if err := c.p.checkMovable(ctx, c.channel); err != nil {
			return nil, nil, err
		}
	}
	for _, op := range own {
		c.p.step("storing %s", op.Tag)
		if err := c.p.putOp(ctx, op, c.keys); err != nil {
			return nil, nil, err
		}
		c.own[op.Tag] = true
	}
	last, err := c.settle(ctx, own)
	if err != nil {
		return nil, nil, err
	}
	var losses []ops.Loss
	for _, op := range own {
		s, err := last.published(ctx, imagesOf(op)...)
		if err != nil {
			return nil, nil, err
		}
		losses = append(losses, ops.Lost(s, op)...)
	}
	return last, losses, nil
}

// checkMayWrite returns KindSigned if a channel is signed and there is no key.
func (p *Publisher) checkMayWrite(ctx context.Context, v *View) error {
	if len(p.keys) > 0 || v.Digest == "" {
		return nil
	}
	switch _, err := p.registry.Head(ctx, p.repository, catalog.SignatureTag(v.Digest)); {
	case errors.Is(err, release.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	return refuse(KindSigned, v.Channel, "the channel is signed, and no key was given to sign the next version")
}

// published returns the content of the version, without the ops that it does not have.
func (v *View) published(ctx context.Context, images ...string) (ops.State, error) {
	pages, err := v.p.Pages(ctx, v.Version, append([]string{}, images...)...)
	return ops.State{Pages: pages, Times: v.Times, Merged: v.merged}, err
}

// imagesOf are the images of ops, sorted; never nil, which would be all.
func imagesOf(all ...catalog.Op) []string {
	images := map[string]bool{}
	for _, op := range all {
		for _, c := range op.Changes {
			images[c.Image] = true
		}
	}
	return append([]string{}, slices.Sorted(maps.Keys(images))...)
}

// settle publishes until the channel has these ops.
func (c *change) settle(ctx context.Context, own []catalog.Op) (*View, error) {
	if len(own) > 0 {
		if err := c.awaitListed(ctx, own); err != nil {
			return nil, err
		}
	}
	for attempt := 1; ; attempt++ {
		last, err := c.merge(ctx, own)
		if err != nil {
			return nil, err
		}
		lost, err := last.lacking(ctx, own)
		switch {
		case err != nil:
			return nil, err
		case len(lost) == 0:
			return last, nil
		case attempt == store.MaxAttempts: // it is in the list of tags again and again, or not
			return nil, refuse(KindTimeout, lost[0].Tag, "stored, but still not in the channel")
		}
		for _, op := range lost { // another publisher has deleted it
			if err := c.p.putOp(ctx, op, c.keys); err != nil {
				return nil, err
			}
		}
		if err := store.BackOff(ctx, attempt); err != nil {
			return nil, err
		}
	}
}

// lacking returns those of the ops that the version does not have: it names them not, and folding them would change it.
// An op that was folded may be deleted, and then no version names it.
func (v *View) lacking(ctx context.Context, own []catalog.Op) ([]catalog.Op, error) {
	var out []catalog.Op
	for _, op := range own {
		if slices.Contains(v.merged, op.Tag) {
			continue
		}
		before, err := v.published(ctx, imagesOf(op)...)
		if err != nil {
			return nil, err
		}
		after, _ := ops.Fold(before, op)
		if after.Refreshed != before.Refreshed || after.Freeze != before.Freeze ||
			!maps.EqualFunc(after.Pages, before.Pages, isSamePage) {
			out = append(out, op)
		}
	}
	return out, nil
}

func isSamePage(a, b catalog.Page) bool { return slices.EqualFunc(a.Releases, b.Releases, ops.IsSame) }

// awaitListed waits until the registry lists the tags of ops, because other publishers fold listed ops only.
func (c *change) awaitListed(ctx context.Context, own []catalog.Op) error {
	for attempt := 1; ; attempt++ {
		tags, err := c.p.registry.Tags(ctx, c.p.repository)
		if err != nil {
			return err
		}
		listed := setOf(tags)
		missing := slices.IndexFunc(own, func(op catalog.Op) bool { return !listed[op.Tag] })
		switch {
		case missing < 0, c.has(ctx, own):
			return nil
		case attempt == store.MaxAttempts:
			return refuse(KindTimeout, own[missing].Tag, "stored, but %s does not list it", c.p.repository)
		}
		if err := store.BackOff(ctx, attempt); err != nil {
			return err
		}
	}
}

// has reports whether the channel has ops that other publishers have folded and deleted already.
func (c *change) has(ctx context.Context, own []catalog.Op) bool {
	v, err := c.view(ctx)
	if err != nil || v.Digest == "" {
		return false
	}
	lost, err := v.lacking(ctx, own)
	return err == nil && len(lost) == 0
}

// merging is the state of merge.
type merging struct {
	*change

	own        []catalog.Op
	mine, must map[string]bool // tags of ops: the own ones, and those that must come into the channel
	begun      bool            // the next list says which must
	// tries and wrote are how often a version was published, and how often with success, and patience how often another
	// publisher was waited for.
	tries, wrote, patience int
	raced                  error // the last one
}

// merge publishes versions until the channel has its own ops, and all that waited before, and returns the channel.
//
// What it publishes may replace what another publisher has published a moment before. So after it has published, it
// reads the list of ops once more: all that are in it must come into the channel, too. Ops that appear later are safe,
// as nothing is published after them here. Those of others it leaves to their publishers for a while: eight that fold
// each other's ops would never end.
func (c *change) merge(ctx context.Context, own []catalog.Op) (*View, error) {
	m := merging{change: c, own: own, mine: map[string]bool{}, begun: true, patience: 1}
	for _, op := range own {
		m.mine[op.Tag] = true
	}
	for m.tries < rounds {
		v, err := c.view(ctx)
		if err == nil {
			err = c.checkFrozen(ctx, v, own)
		}
		if err != nil {
			return nil, err
		}
		if m.begun {
			m.begin(v)
		}
		settled, err := v.isSettled(ctx, m.must, m.wrote > 0)
		if err == nil && settled {
			return v, nil
		}
		if err == nil {
			err = m.next(ctx, v)
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, &Error{
		Kind: KindTimeout, Object: c.channel, Err: m.raced,
		Text: fmt.Sprintf("published %d times without success: the registry does not show what it stored, "+
			"or others keep publishing", rounds),
	}
}

func (m *merging) begin(v *View) {
	m.must, m.begun = maps.Clone(m.mine), false
	for _, op := range v.Pending {
		m.must[op.Tag] = true
	}
}

// next publishes the next version, or waits for another publisher who does.
func (m *merging) next(ctx context.Context, v *View) error {
	isOurs := m.wrote == 0 || v.lacks(m.mine) || !v.lacks(m.must) && v.isNext || m.patience > maxPatience
	if !isOurs {
		m.patience++
		return store.BackOff(ctx, m.patience-1)
	}
	d, err := m.p.draft(ctx, v)
	if err == nil {
		err = m.p.publish(ctx, d)
	}
	m.tries++
	switch {
	case isKind(err, KindRaced): // the next round builds upon what the other one has published
		m.raced = err
		return store.BackOff(ctx, m.patience)
	case err != nil:
		return err
	}
	m.begun, m.patience = true, 1
	if m.wrote++; m.wrote > 2 {
		return store.BackOff(ctx, m.wrote)
	}
	return nil
}

// checkFrozen takes own ops back that a freeze has refused: it came in between.
func (c *change) checkFrozen(ctx context.Context, v *View, own []catalog.Op) error {
	for _, op := range own {
		// Who froze the channel would have published an op that was listed.
		if slices.Contains(v.merged, op.Tag) || !ops.Brings(op) || !ops.IsFrozen(v.Times, c.p.now()) {
			continue
		}
		for _, op := range own {
			d, err := c.p.registry.Head(ctx, c.p.repository, op.Tag)
			if err == nil {
				err = c.p.registry.Remove(ctx, c.p.repository, d)
			}
			if err != nil && !errors.Is(err, release.ErrNotFound) && !errors.Is(err, store.ErrNoDelete) {
				return err
			}
		}
		if is, err := c.view(ctx); err != nil || slices.Contains(is.merged, op.Tag) {
			return err // a third publisher has published it
		}
		return refuse(KindFrozen, c.channel, "the channel was frozen meanwhile, until %s", v.Frozen.Format(time.RFC3339))
	}
	return nil
}

// lacks reports whether the version lacks one of these ops.
func (v *View) lacks(tags map[string]bool) bool {
	return slices.ContainsFunc(v.Pending, func(op catalog.Op) bool { return tags[op.Tag] })
}

// isSettled reports whether the channel has all ops that must be in it. If this publisher wrote, the channel must also
// be the newest, or nodes that have seen another version of the same number, or a higher one, do not take it: the
// writes of two publishers have crossed.
func (v *View) isSettled(ctx context.Context, must map[string]bool, wrote bool) (bool, error) {
	switch {
	case v.Digest == "" || v.head != v.Digest || v.lacks(must):
		return false, nil
	case !wrote:
		return true, nil
	case !v.isNext:
		return false, nil
	}
	is, err := v.p.head(ctx, catalog.VersionTag(v.Channel, v.Version.Version))
	return is == v.Digest, err
}

// result describes the channel as it is now.
func (c *change) result(ctx context.Context, last *View, losses []ops.Loss) (Result, error) {
	// Only the parts of the log since the change began. An op that was pruned, stored again and folded again by now is
	// reported again: it came in with this request.
	written := last.Version
	written.Log = slices.DeleteFunc(slices.Clone(last.Log), func(part catalog.BlobRef) bool {
		return slices.Contains(c.first.Log, part)
	})
	log, err := c.p.Log(ctx, written)
	if err != nil {
		return Result{}, err
	}
	since := c.first.Version.Version
	log = slices.DeleteFunc(log, func(e catalog.Entry) bool { return e.Version <= since })
	got := Result{
		Channel: c.channel, Outcomes: slices.Clone(c.outcomes), Waiting: last.Waiting, Others: othersOf(log, c.own),
	}
	got.Changed = len(c.own) > 0 || last.Digest != c.first.Digest
	for _, l := range losses {
		switch {
		case l.Change.Image == "":
			err = refuse(KindRaced, c.channel, "%s: %s", l.Why, l.By)
		case l.Final && l.By == "":
			err = refuse(KindRaced, l.Change.Member(), "%s", l.Why)
		}
		for n := range got.Outcomes {
			if o := &got.Outcomes[n]; o.Image == l.Change.Image && o.Tag == l.Change.Release.Tag {
				o.Changed, o.Note = false, l.Why+", by "+l.By
			}
		}
	}
	return got.at(last.Version), err
}
