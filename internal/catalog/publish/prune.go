// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
)

// settleTime is how long something stays after the channel has got on without it: a publisher that
// has begun before must find the ops that its own version lacks. No publisher takes as long.
const settleTime = 24 * time.Hour

// Pruning selects what Prune deletes.
type Pruning struct {
	Keep   int           // so many of the newest versions stay; at least one does
	Older  time.Duration // what was replaced within this time stays; at least 24 hours
	DryRun bool
	// Foreign deletes also the ops that never count, because the channel's keys have not signed them.
	Foreign bool
}

// Pruned lists the deleted tags of a channel, and why the others stay.
type Pruned struct {
	Deleted []string   `json:"deleted"` // tags, sorted; of a dry run, those that would be deleted
	Kept    []KeptTags `json:"kept"`
}

// KeptTags are tags of a channel that stay for one reason.
type KeptTags struct {
	Count int    `json:"count"`
	Why   string `json:"why"`
}

// Prune deletes old versions of a channel with their signatures, ops that the channel has, and signatures of deleted
// versions. It keeps everything that the channel got or replaced within the last 24 hours.
func (p *Publisher) Prune(ctx context.Context, channel string, o Pruning) (Pruned, error) {
	v, err := p.Read(ctx, channel)
	if err != nil {
		return Pruned{}, err
	}
	if !o.DryRun {
		if err := p.checkMayWrite(ctx, &View{Version: v}); err != nil {
			return Pruned{}, err
		}
	}
	tags, err := p.registry.Tags(ctx, p.repository)
	if err != nil {
		return Pruned{}, err
	}
	foreign, err := p.foreign(ctx, channel, o)
	if err != nil {
		return Pruned{}, err
	}
	old, out, err := p.old(ctx, v, tags, foreign, o)
	if err != nil {
		return Pruned{}, err
	}
	listed := setOf(tags)
	var mu sync.Mutex
	out.Deleted = []string{}
	err = each(ctx, p.jobs, old, func(ctx context.Context, _ int, tag string) error {
		p.step("deleting %s", tag)
		deleted, err := p.deleteTag(ctx, v, tag, listed, o.DryRun)
		mu.Lock()
		defer mu.Unlock()
		out.Deleted = append(out.Deleted, deleted...)
		return err
	})
	slices.Sort(out.Deleted)
	out.Deleted = slices.Compact(out.Deleted)
	return out, err
}

// foreign returns the ops of a channel that never count.
func (p *Publisher) foreign(ctx context.Context, channel string, o Pruning) (map[string]bool, error) {
	out := map[string]bool{}
	if !o.Foreign {
		return out, nil
	}
	v, err := p.View(ctx, channel)
	if err != nil {
		return nil, err
	}
	if !v.keys.areThere() {
		return nil, refuse(KindInput, channel, "no key was given to tell which ops are foreign")
	}
	for _, w := range v.Waiting {
		if _, isOwn := p.cache.ops.get(channel + " " + w.Op); !isOwn {
			out[w.Op] = true
		}
	}
	return out, nil
}

// old returns the tags that may be deleted, and why the others of the channel stay.
func (p *Publisher) old(
	ctx context.Context, v Version, tags []string, foreign map[string]bool, o Pruning,
) ([]string, Pruned, error) {
	span := max(o.Older, settleTime)
	settled, below, err := p.settled(ctx, v, span)
	if err != nil {
		return nil, Pruned{}, err
	}
	old, err := p.orphans(ctx, tags)
	if err != nil {
		return nil, Pruned{}, err
	}
	newest, recent, stored := 0, 0, 0
	for _, tag := range tags {
		of, version, isVersion := catalog.ParseVersionTag(tag)
		opOf, isOp := catalog.OpChannel(tag)
		switch {
		case settled[tag], foreign[tag]:
			old = append(old, tag)
		case isOp && opOf == v.Channel:
			stored++
		case !isVersion || of != v.Channel:
		case version > v.Version || v.Version-version < uint64(max(o.Keep, 1)):
			newest++
		case version >= below:
			recent++
		default:
			old = append(old, tag)
		}
	}
	slices.Sort(old)
	out := Pruned{Kept: []KeptTags{}}
	for _, kept := range []KeptTags{
		{newest, "the newest versions"},
		{recent, fmt.Sprintf("versions that were replaced within the last %s", span)},
		{stored, fmt.Sprintf("ops that the channel does not have for %s yet", span)},
	} {
		if kept.Count > 0 {
			out.Kept = append(out.Kept, kept)
		}
	}
	return old, out, nil
}

// orphans returns the tags of signatures whose manifest is not there any more. A publisher stores the manifest first.
func (p *Publisher) orphans(ctx context.Context, tags []string) ([]string, error) {
	var mu sync.Mutex
	var out []string
	err := each(ctx, p.jobs, tags, func(ctx context.Context, _ int, tag string) error {
		d, is := catalog.SignedDigest(tag)
		if !is {
			return nil
		}
		_, err := p.registry.Head(ctx, p.repository, d.String())
		if errors.Is(err, release.ErrNotFound) {
			mu.Lock()
			defer mu.Unlock()
			out = append(out, tag)
			return nil
		}
		return err
	})
	return out, err
}

// settled returns the ops that a channel has, and had this long ago, and the version that it had then:
// older ones are not needed. If that version cannot be read, there are none.
func (p *Publisher) settled(
	ctx context.Context, v Version, span time.Duration,
) (kept map[string]bool, below uint64, err error) {
	before := p.now().Add(-span)
	var then Version
	_, err = p.back(ctx, v, func(each Version) (bool, error) {
		if each.Created.After(before) {
			return true, nil
		}
		then = each
		return false, nil
	})
	if err != nil {
		return nil, 0, err
	}
	had, err := p.mergedOps(ctx, then)
	if err != nil {
		return nil, 0, err
	}
	has, err := p.mergedOps(ctx, v)
	if err != nil {
		return nil, 0, err
	}
	kept = map[string]bool{}
	state := ops.State{Merged: has}
	for _, op := range had {
		kept[op] = state.IsMerged(op)
	}
	return kept, then.Version, nil
}

// deleteTag deletes the manifest of a tag, and then its signature, unless the channel's tag names it, too: a version is
// never there without its signature, and a signature alone is found later.
func (p *Publisher) deleteTag(
	ctx context.Context, v Version, tag string, listed map[string]bool, dryRun bool,
) ([]string, error) {
	d, err := p.registry.Head(ctx, p.repository, tag)
	switch {
	case errors.Is(err, release.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case d == v.Digest:
		return nil, nil
	}
	gone := []string{tag}
	if sig := catalog.SignatureTag(d); listed[sig] {
		gone = append(gone, sig)
	}
	if dryRun {
		return gone, nil
	}
	for _, each := range gone {
		d, err := p.registry.Head(ctx, p.repository, each)
		if err == nil {
			err = p.registry.Remove(ctx, p.repository, d)
		}
		if err != nil && !errors.Is(err, release.ErrNotFound) {
			return nil, err
		}
	}
	return gone, nil
}
