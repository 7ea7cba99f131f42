// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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
	Expires time.Time // of refresh
	New     bool      // the channel may not exist yet
	DryRun  bool
	Out     string // write the next version into this directory, to be signed elsewhere
}

// Change changes a channel. It refuses a conflict before anything is written. A change that the
// channel has already, or that its page would not keep, is no error, and an outcome says so.
func (p *Publisher) Change(ctx context.Context, r Request) (Result, error) {
	base, tags, err := p.before(ctx, r)
	if err != nil {
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
	tags, err := p.client.Tags(ctx, p.repository)
	return base, tags, err
}

// plan returns the ops that a request needs, and what becomes of its changes.
func (p *Publisher) plan(
	ctx context.Context, r Request, base Version, tags []string,
) ([]catalog.Op, []Outcome, error) {
	var images []string
	for _, c := range r.Changes {
		images = append(images, c.Image)
	}
	slices.Sort(images)
	state := catalog.State{Expires: base.Expires, Refreshed: base.Refreshed}
	var err error
	if state.Pages, err = p.Pages(ctx, base, append([]string{}, slices.Compact(images)...)...); err != nil {
		return nil, nil, err
	}
	last := newestOp(r.Channel, base, tags)
	op := catalog.Op{
		Tag: catalog.NewOpTag(r.Channel, p.now(), last), Name: p.name, Channel: r.Channel,
		Do: r.Do, Changes: r.Changes, Expires: r.Expires,
	}
	next, folded := catalog.Fold(state, op)
	effective, outcomes, err := sift(r, state, next, folded)
	switch {
	case err != nil, r.Do == "":
		return nil, outcomes, err
	case r.Do == catalog.ActionRefresh:
		return []catalog.Op{op}, outcomes, nil
	}
	var ops []catalog.Op
	for changes := range slices.Chunk(effective, catalog.MaxChanges) {
		op.Changes = changes
		if len(ops) > 0 {
			op.Tag = catalog.NewOpTag(r.Channel, p.now(), ops[len(ops)-1].Tag)
		}
		ops = append(ops, op)
	}
	return ops, outcomes, nil
}

// newestOp returns the tag of a channel's newest op that is known.
func newestOp(channel string, base Version, tags []string) string {
	last := base.Refreshed
	for _, tag := range slices.Concat(tags, base.Merged) {
		if of, ok := catalog.OpChannel(tag); ok && of == channel {
			last = max(last, tag)
		}
	}
	return last
}

// sift returns the changes that have an effect, and what becomes of each. The error names all
// conflicts.
func sift(r Request, before, after catalog.State, folded []catalog.Outcome) ([]catalog.Change, []Outcome, error) {
	var effective []catalog.Change
	outcomes := []Outcome{}
	var conflicts []string
	for n, f := range folded {
		c := r.Changes[n]
		o := Outcome{Image: f.Image, Tag: f.Tag, Digest: c.Release.Digest, Changed: f.Changed}
		is := find(after.Pages[f.Image], f.Tag)
		switch was := find(before.Pages[f.Image], f.Tag); {
		case f.Err != nil:
			conflicts = append(conflicts, f.Err.Error())
		case is == nil:
			o.Changed, o.Note = false, "older than what the page keeps"
		case f.Changed && was != nil && isSame(*was, *is):
			o.Changed, o.Note = false, "listed so already"
		case f.Changed:
			effective = append(effective, c)
			o.Note = overtaken(r, after.Pages[f.Image], f.Tag)
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

// isSame reports whether releases differ in nothing but the op that changed them last.
func isSame(a, b catalog.Release) bool {
	a.Op, b.Op = "", ""
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

// mergeOwn publishes until the channel has these ops.
func (p *Publisher) mergeOwn(ctx context.Context, r Request, ops []catalog.Op) (draft, error) {
	if len(ops) > 0 {
		if err := p.awaitListed(ctx, ops); err != nil {
			return draft{}, err
		}
	}
	for attempt := 1; ; attempt++ {
		d, err := p.merge(ctx, r.Channel, r.New, ops...)
		if err != nil {
			return d, err
		}
		merged, err := p.mergedOps(ctx, d.base)
		if err != nil {
			return d, err
		}
		missing := slices.IndexFunc(ops, func(op catalog.Op) bool { return !slices.Contains(merged, op.Tag) })
		switch {
		case missing < 0:
			return d, p.confirm(ctx, d.base, ops)
		case attempt == store.MaxAttempts: // it is in the list of tags again and again, or not
			return d, refuse(KindTimeout, ops[missing].Tag, "stored, and still not folded")
		}
		if err := store.BackOff(ctx, attempt); err != nil {
			return d, err
		}
	}
}

// confirm returns the conflict that another publisher has made in the meantime.
func (p *Publisher) confirm(ctx context.Context, v Version, ops []catalog.Op) error {
	images := []string{}
	for _, op := range ops {
		for _, c := range op.Changes {
			images = append(images, c.Image)
		}
	}
	slices.Sort(images)
	pages, err := p.Pages(ctx, v, slices.Compact(images)...)
	if err != nil {
		return err
	}
	_, folded := catalog.Fold(catalog.State{Pages: pages, Expires: v.Expires, Refreshed: v.Refreshed}, ops...)
	for _, f := range folded {
		if f.Err != nil {
			return &Error{Kind: KindDigest, Object: v.Channel, Text: "refused", Err: f.Err}
		}
	}
	return nil
}
