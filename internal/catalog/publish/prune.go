// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// settleTime is how long something stays after the channel has got on without it: a publisher that
// has begun before must find the ops that its own version lacks. No publisher takes as long.
const settleTime = 24 * time.Hour

// Prune deletes the ops of a channel that its newest version has, and one that is older than a day has,
// too; versions below the keep newest ones that were replaced more than a day ago, and their
// signatures. It returns the tags that it deleted, sorted; of a dry run, those that it would.
func (p *Publisher) Prune(ctx context.Context, channel string, keep int, dryRun bool) ([]string, error) {
	v, err := p.Read(ctx, channel)
	if err != nil {
		return nil, err
	}
	if !dryRun {
		if err := p.checkMayWrite(ctx, v); err != nil {
			return nil, err
		}
	}
	settled, below, err := p.settled(ctx, v)
	if err != nil {
		return nil, err
	}
	tags, err := p.client.Tags(ctx, p.repository)
	if err != nil {
		return nil, err
	}
	var old []string
	listed := map[string]bool{}
	for _, tag := range tags {
		listed[tag] = true
		of, version, ok := catalog.ParseVersionTag(tag)
		isOld := ok && of == channel && version < below && v.Version-version >= uint64(max(keep, 1))
		if isOld || settled[tag] {
			old = append(old, tag)
		}
	}
	slices.Sort(old)
	var mu sync.Mutex
	gone := []string{}
	err = each(ctx, old, func(ctx context.Context, _ int, tag string) error {
		p.step("deleting %s", tag)
		deleted, err := p.deleteTag(ctx, v, tag, listed, dryRun)
		mu.Lock()
		defer mu.Unlock()
		gone = append(gone, deleted...)
		return err
	})
	slices.Sort(gone)
	return gone, err
}

// settled returns the ops that a channel has, and had a day ago, and the version that it had then:
// older ones are not needed. Where that cannot be told, there are none.
func (p *Publisher) settled(ctx context.Context, v Version) (ops map[string]bool, below uint64, err error) {
	before := p.now().Add(-settleTime)
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
	ops, state := map[string]bool{}, catalog.State{Merged: has}
	for _, op := range had {
		ops[op] = state.IsMerged(op)
	}
	return ops, then.Version, nil
}

// deleteTag deletes what a tag names, and its signature, unless the channel names it, too.
func (p *Publisher) deleteTag(
	ctx context.Context, v Version, tag string, listed map[string]bool, dryRun bool,
) ([]string, error) {
	d, err := p.client.Head(ctx, p.repository, tag)
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
	for _, each := range slices.Backward(gone) {
		d, err := p.client.Head(ctx, p.repository, each)
		if err == nil {
			err = p.client.Remove(ctx, p.repository, d)
		}
		if err != nil && !errors.Is(err, release.ErrNotFound) {
			return nil, err
		}
	}
	return gone, nil
}
