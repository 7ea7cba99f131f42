// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// Prune deletes the ops of a channel that its newest version has, versions below the keep newest
// ones, and their signatures. It returns the tags that it deleted, sorted; of a dry run, those that it
// would.
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
	merged, err := p.mergedOps(ctx, v)
	if err != nil {
		return nil, err
	}
	tags, err := p.client.Tags(ctx, p.repository)
	if err != nil {
		return nil, err
	}
	var old []string
	listed, state := map[string]bool{}, catalog.State{Merged: merged}
	for _, tag := range tags {
		listed[tag] = true
		of, version, ok := catalog.ParseVersionTag(tag)
		isOld := ok && of == channel && version+uint64(max(keep, 1)) <= v.Version
		if isOld || state.IsMerged(tag) {
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
