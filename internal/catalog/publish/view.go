// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
)

const (
	// maxLater is how many version tags above the channel's version are read: the nearest, because versions follow one
	// another. Whoever may push can store any number of others.
	maxLater = 64
)

// Waiting is an op that does not count, and why.
type Waiting struct {
	Op  string `json:"op"`
	Why string `json:"why"`
}

// View is a channel as its next publisher finds it: its newest version, and the ops that count and that the version
// does not have.
type View struct {
	Version

	Pending []catalog.Op
	Waiting []Waiting

	p        *Publisher
	keys     keys
	base     *base
	replaced uint64        // the version that the channel names where a base was chosen
	head     digest.Digest // what the channel's tag names; another one than Digest where a base was chosen
	tags     []string
	merged   []string // the ops of the version
	isNext   bool     // no later version of the channel is listed

	mu     sync.Mutex
	pages  map[string]catalog.Page // with the pending ops
	whole  bool                    // pages has all
	logged []catalog.Entry         // see log
}

// View returns a channel to be changed. It refuses a channel that went back to an older version.
func (p *Publisher) View(ctx context.Context, channel string) (*View, error) {
	k, err := p.keysOf(channel)
	if err != nil {
		return nil, err
	}
	p.step("reading %s", channel)
	return p.view(ctx, channel, k, false, nil)
}

// Offer returns a channel from which another one is promoted. Its own keys say what it offers.
func (p *Publisher) Offer(ctx context.Context, channel string) (*View, error) {
	if err := CheckChannel(channel); err != nil {
		return nil, err
	}
	pems := append(slices.Clone(p.trust.own(channel)), p.signing()...)
	k, err := newKeys(min(p.trust.Require, countKeys(pems)), nil, pems...)
	if err != nil {
		return nil, err
	}
	p.step("reading %s", channel)
	return p.view(ctx, channel, k, false, nil)
}

// view returns a channel; one that does not exist yet if that is allowed. on is nil for the channel's newest version.
func (p *Publisher) view(ctx context.Context, channel string, k keys, mayBeNew bool, on *base) (*View, error) {
	v := &View{p: p, keys: k, base: on, pages: map[string]catalog.Page{}}
	err := v.readBase(ctx, channel)
	if mayBeNew && isKind(err, KindChannel) {
		v.Version, v.Channel, v.Name, err = Version{}, channel, p.name, nil
	}
	if err != nil {
		return nil, err
	}
	if v.tags, err = p.registry.Tags(ctx, p.repository); err != nil {
		return nil, err
	}
	if v.merged, err = p.mergedOps(ctx, v.Version); err != nil {
		return nil, err
	}
	if err := v.readOps(ctx); err != nil {
		return nil, err
	}
	later := laterTags(v.Version.Version, channel, v.tags)
	v.isNext = len(later) == 0
	if v.head == v.Digest {
		err = v.checkBehind(ctx, later)
	}
	return v, err
}

// readOps reads the ops that the version does not have.
func (v *View) readOps(ctx context.Context) error {
	p := v.p
	var pending []string
	merged := ops.State{Merged: v.merged}
	for _, tag := range v.tags {
		if of, ok := catalog.OpChannel(tag); ok && of == v.Channel && !merged.IsMerged(tag) {
			pending = append(pending, tag)
		}
	}
	if len(pending) > 0 {
		p.step("reading %d ops", len(pending))
	}
	slices.Sort(pending)
	read := make([]cachedOp, len(pending))
	err := each(ctx, p.jobs, pending, func(ctx context.Context, n int, tag string) (err error) {
		known, ok := p.cache.ops.get(v.Channel + " " + tag)
		if !ok {
			if known, ok, err = v.readOp(ctx, tag); ok {
				p.cache.ops.put(v.Channel+" "+tag, known, 0, 0)
			}
		}
		read[n] = known
		return err
	})
	var good []catalog.Op
	for _, is := range read {
		if is.why == "" && ops.Refusal(v.Times, is.op, p.now()) == "" {
			good = append(good, is.op)
		}
	}
	upcoming, _ := ops.Fold(ops.State{Times: v.Times}, onlyOf(good, nil)...) // a freeze may be among them
	upcoming.Turn = v.Turn
	for n, tag := range pending {
		why := read[n].why
		if why == "" {
			why = ops.Refusal(upcoming.Times, read[n].op, p.now())
		}
		if why == "" {
			v.Pending = append(v.Pending, read[n].op)
		} else {
			v.Waiting = append(v.Waiting, Waiting{Op: tag, Why: why})
		}
	}
	return err
}

// readOp reads an op by its tag; isLasting: the same is read next time.
func (v *View) readOp(ctx context.Context, tag string) (op cachedOp, isLasting bool, err error) {
	if why := ops.Refusal(catalog.Times{}, catalog.Op{Tag: tag}, v.p.now()); why != "" {
		return cachedOp{why: why}, false, nil // without a request
	}
	_, body, err := v.p.registry.Manifest(ctx, v.p.repository, tag)
	switch {
	case errors.Is(err, release.ErrNotFound):
		return cachedOp{why: "the registry lists it but does not have it"}, false, nil
	case err != nil:
		return cachedOp{}, false, err
	}
	if op.op, err = v.keys.op(ctx, tag, v.p.name, body); err == nil && v.base != nil && len(v.p.keys) == 0 {
		err = errLeftOut
	}
	if err != nil {
		return cachedOp{why: err.Error()}, errors.Is(err, errTooFew), nil // one bad op stops no other
	}
	return op, v.base == nil, nil
}

// Pages returns the pages of these images, or of all images if none are named, with the pending ops folded in. It
// leaves out images that are not listed.
func (v *View) Pages(ctx context.Context, images ...string) (map[string]catalog.Page, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	wanted := images
	if images == nil {
		wanted = v.images()
	}
	var lacking []string
	for _, image := range wanted {
		if _, known := v.pages[image]; !known {
			lacking = append(lacking, image)
		}
	}
	if len(lacking) > 0 && !v.whole {
		slices.Sort(lacking)
		read, err := v.p.Pages(ctx, v.Version, slices.Compact(lacking)...)
		if err != nil {
			return nil, err
		}
		v.countTurns(read)
		state, _ := ops.Fold(ops.State{Pages: read}, onlyOf(v.Pending, lacking)...)
		maps.Copy(v.pages, state.Pages)
		v.whole = images == nil
	}
	out := map[string]catalog.Page{}
	for _, image := range wanted {
		if page, listed := v.pages[image]; listed {
			out[image] = page
		}
	}
	return out, nil
}

// countTurns puts the next op after those that have changed releases: an older publisher, which knows no turns, keeps
// theirs and drops that of its channel.
func (v *View) countTurns(pages map[string]catalog.Page) {
	last := v.Turn
	for _, page := range pages {
		for _, r := range page.Releases {
			turn := r.Turn
			if r.Again != nil {
				turn = max(turn, r.Again.Turn)
			}
			if r.Withdrawn != nil {
				turn = max(turn, r.Withdrawn.Turn)
			}
			if turn > last && turn < v.Turn+catalog.MaxJump {
				last = turn
			}
		}
	}
	v.Turn = last
}

// with returns the channel as it is with more ops, which come after those that are pending.
func (v *View) with(more []catalog.Op) *View {
	next := v.p.Past(v.Version)
	next.Pending = slices.Clone(v.Pending)
	for _, op := range more {
		op.Turn = ops.Next(v.Times, next.Pending...)
		next.Pending = append(next.Pending, op)
	}
	return next
}

// images are those of the version and of the pending ops, sorted.
func (v *View) images() []string {
	all := imagesOf(v.Pending...)
	for _, ref := range v.Manifest.Pages {
		all = append(all, ref.Image)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// onlyOf returns ops with the changes of these images only.
func onlyOf(all []catalog.Op, images []string) []catalog.Op {
	wanted := setOf(images)
	out := slices.Clone(all)
	for n := range out {
		out[n].Changes = slices.DeleteFunc(slices.Clone(out[n].Changes), func(c catalog.Change) bool {
			return !wanted[c.Image]
		})
	}
	return out
}

// content returns the content of the channel, with the pages of these images, or of all.
func (v *View) content(ctx context.Context, images ...string) (ops.State, error) {
	pages, err := v.Pages(ctx, images...)
	times, _ := ops.Fold(ops.State{Times: v.Times}, onlyOf(v.Pending, nil)...)
	return ops.State{Pages: pages, Times: times.Times}, err
}

// log returns the log of the version, with the pending ops, as if they were published now.
func (v *View) log(ctx context.Context) ([]catalog.Entry, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.logged != nil {
		return v.logged, nil
	}
	log, err := v.p.Log(ctx, v.Version)
	if err != nil {
		return nil, err
	}
	for _, op := range v.Pending {
		log = append(log, catalog.NewEntry(op, 0, v.p.now()))
	}
	v.logged = log
	return log, nil
}

// Past returns the view of a version as it is.
func (p *Publisher) Past(v Version) *View {
	return &View{Version: v, p: p, head: v.Digest, pages: map[string]catalog.Page{}, isNext: true}
}

// Waits lists the ops that the version does not have, each with the reason. An op that another publisher folds in this
// moment is among them.
func (v *View) Waits() []Waiting {
	out := append([]Waiting{}, v.Waiting...)
	for _, op := range v.Pending {
		out = append(out, Waiting{Op: op.Tag, Why: "the next publisher publishes it"})
	}
	return out
}
