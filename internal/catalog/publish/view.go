// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
	"github.com/kubic-project/image-update-agent/internal/registry/signature"
)

const (
	// maxLater is how many version tags above the channel's version are read: the nearest, because versions follow one
	// another. Whoever may push can store any number of others.
	maxLater = 64
	// furthest is how far above the channel's version a version tag counts: whoever may push could else use up all
	// numbers. Nodes take none that is further.
	furthest = catalog.MaxJump
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

	mu    sync.Mutex
	pages map[string]catalog.Page // with the pending ops
	whole bool                    // pages has all
}

// Read returns the newest version of a channel. Its error has KindChannel where there is no such channel; with keys,
// KindUnsigned where it has no valid signature.
func (p *Publisher) Read(ctx context.Context, channel string) (Version, error) {
	if err := CheckChannel(channel); err != nil {
		return Version{}, err
	}
	p.step("reading %s", channel)
	k, err := p.keysOf(channel)
	if err != nil {
		return Version{}, err
	}
	return p.newest(ctx, channel, k)
}

// newest returns the version that the tag of a channel names.
func (p *Publisher) newest(ctx context.Context, channel string, k keys) (Version, error) {
	v, err := p.read(ctx, channel, channel, k)
	switch {
	case errors.Is(err, release.ErrNotFound):
		return Version{}, p.noChannel(ctx, channel)
	case isKind(err, KindUnsigned):
		return Version{}, p.nameBase(ctx, channel, k, err)
	case err != nil:
		return Version{}, err
	case v.Channel != channel || v.Name != p.name:
		return Version{}, refuse(KindRaced, channel, "it was published as channel %s of %s", v.Channel, v.Name)
	}
	return v, p.state.note(ctx, p.name, channel, v, !k.areThere() || v.SignedBy != "")
}

// nameBase adds to the error of a channel whose newest version has no valid signature the newest one that has.
func (p *Publisher) nameBase(ctx context.Context, channel string, k keys, err error) error {
	tags, errTags := p.registry.Tags(ctx, p.repository)
	if errTags != nil {
		return err
	}
	var versions []uint64
	for _, tag := range tags {
		if of, n, ok := catalog.ParseVersionTag(tag); ok && of == channel {
			versions = append(versions, n)
		}
	}
	slices.Sort(versions)
	for _, n := range slices.Backward(versions[max(0, len(versions)-maxLater):]) {
		if v, errRead := p.readVersion(ctx, channel, n, k); errRead == nil && v.SignedBy != "" {
			if e, ok := errors.AsType[*Error](err); ok {
				e.Base = n
			}
			break
		}
	}
	return err
}

// ReadVersion returns an earlier version of a channel, which was not pruned.
func (p *Publisher) ReadVersion(ctx context.Context, channel string, version uint64) (Version, error) {
	k, err := p.keysOf(channel)
	if err != nil {
		return Version{}, err
	}
	p.step("reading %s", catalog.VersionTag(channel, version))
	return p.readVersion(ctx, channel, version, k)
}

func (p *Publisher) readVersion(ctx context.Context, channel string, version uint64, k keys) (Version, error) {
	tag := catalog.VersionTag(channel, version)
	v, err := p.read(ctx, tag, channel, k)
	switch {
	case errors.Is(err, release.ErrNotFound):
		return v, refuse(KindImage, tag, "the registry has no such version: it was pruned, or never published")
	case err == nil && (v.Channel != channel || v.Name != p.name || v.Version != version):
		err = refuse(KindRaced, tag, "the tag names version %d of channel %s of %s", v.Version, v.Channel, v.Name)
	}
	return v, err
}

// read returns the version of a tag or digest, signed with the keys of a channel.
func (p *Publisher) read(ctx context.Context, tagOrDigest, channel string, k keys) (Version, error) {
	_, body, err := p.registry.Manifest(ctx, p.repository, tagOrDigest)
	if err != nil {
		return Version{}, err
	}
	d := digest.FromBytes(body)
	if isProbe(tagOrDigest, d) {
		return Version{}, fmt.Errorf("%s: %w", tagOrDigest, release.ErrNotFound)
	}
	signedBy, isKnown := p.cache.signer(channel, d)
	if k.areThere() && !isKnown {
		signedBy, err = k.version(ctx, &p.reader, d)
		isUnsigned := errors.Is(err, signature.ErrUnsigned)
		switch {
		case isUnsigned && p.unsigned:
		case isUnsigned, errors.Is(err, signature.ErrWrong):
			return Version{}, &Error{Kind: KindUnsigned, Object: tagOrDigest, Text: "no valid signature", Err: err}
		case err != nil:
			return Version{}, fmt.Errorf("%s: %w", tagOrDigest, err)
		default:
			p.cache.addSigner(channel, d, signedBy)
		}
	}
	v, isKnown := p.cache.version(d)
	if !isKnown {
		v.Digest = d
		if v.Manifest, err = p.decode(ctx, body); err != nil {
			return Version{}, fmt.Errorf("%s: %w", tagOrDigest, err)
		}
		p.cache.addVersion(v)
	}
	v.SignedBy = signedBy
	return v, nil
}

// View returns a channel to be changed. It refuses a channel that went back to an older version.
func (p *Publisher) View(ctx context.Context, channel string) (*View, error) {
	if err := CheckChannel(channel); err != nil {
		return nil, err
	}
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

// base is the version that the next one builds upon in the place of the channel's.
type base struct {
	version  uint64
	replaced *digest.Digest // what the channel's tag named when the base was read first
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

// readBase reads the version that the next one builds upon: the channel's, or the base that was chosen, until the
// channel names another version than when it was chosen.
func (v *View) readBase(ctx context.Context, channel string) (err error) {
	p := v.p
	if v.base == nil {
		v.Version, err = p.newest(ctx, channel, v.keys)
		v.head = v.Digest
		return err
	}
	if v.head, err = p.head(ctx, channel); err != nil {
		return err
	}
	if v.base.replaced == nil {
		v.base.replaced = &v.head
	}
	isReplaced := *v.base.replaced != v.head
	if !isReplaced {
		v.Version, err = p.readVersion(ctx, channel, v.base.version, v.keys)
	}
	if err == nil && !isReplaced && v.head != "" { // nodes that have accepted it take none below
		is, errHead := p.past(ctx, v.head)
		if errHead != nil && !isFinding(errHead) {
			return errHead
		}
		v.replaced = is.Version
	}
	if err == nil && len(p.keys) > 0 { // what was signed with keys that are trusted only for the base does not count
		v.keys, err = newKeys(p.trust.Require, p.trust.Accept, p.signing()...)
	}
	if err == nil && isReplaced {
		v.Version, err = p.newest(ctx, channel, v.keys)
		v.head = v.Digest
	}
	return err
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
		known, ok := p.cache.op(v.Channel + " " + tag)
		if !ok {
			if known, ok, err = v.readOp(ctx, tag); ok {
				p.cache.addOp(v.Channel+" "+tag, known)
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
		return cachedOp{why: "the registry lists it and does not have it"}, false, nil
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

// laterTags returns the version tags of a channel above a version, the lowest first.
func laterTags(version uint64, channel string, tags []string) []string {
	var later []string
	for _, tag := range tags {
		of, n, ok := catalog.ParseVersionTag(tag)
		if ok && of == channel && n > version && n-version < furthest {
			later = append(later, tag)
		}
	}
	slices.SortFunc(later, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return later
}

// nextVersion is one above the channel's, all of its version tags, and the version that a base replaces.
func (v *View) nextVersion() uint64 {
	highest := v.Version.Version
	if later := laterTags(highest, v.Channel, v.tags); len(later) > 0 {
		_, highest, _ = catalog.ParseVersionTag(later[len(later)-1])
	}
	if v.replaced > highest && v.replaced-v.Version.Version < furthest {
		highest = v.replaced
	}
	return highest + 1
}

// laterVersions returns the versions behind tags; with keys, those that are signed. What is under a version tag and is
// no such version does not count.
func (v *View) laterVersions(ctx context.Context, tags []string) ([]Version, error) {
	p := v.p
	tags = tags[:min(len(tags), maxLater)]
	all := make([]Version, len(tags))
	err := each(ctx, p.jobs, tags, func(ctx context.Context, n int, tag string) error {
		is, err := p.read(ctx, tag, v.Channel, v.keys)
		_, number, _ := catalog.ParseVersionTag(tag)
		_, isBad := errors.AsType[*catalog.Error](err)
		switch {
		case isKind(err, KindUnsigned), isBad && !v.keys.areThere(), errors.Is(err, release.ErrNotFound):
			return nil
		case err != nil:
			return fmt.Errorf("version %d, which is above the channel: %w", number, err)
		case v.keys.areThere() && is.SignedBy == "", is.Name != p.name, is.Channel != v.Channel, is.Version != number:
			return nil
		}
		all[n] = is
		return nil
	})
	all = slices.DeleteFunc(all, func(v Version) bool { return v.Digest == "" })
	slices.Reverse(all)
	return all, err
}

// checkBehind refuses a channel that went back: a later version has ops which are neither in the channel nor among
// those that can be folded into it, so that a withdrawal may be among them. The later version of a publisher that was
// stopped, or that is under way, has none: its ops are there. Only versions that a key has signed count, and without
// keys none: whoever may push could forge one. Who hides a signature might as well hide the tag.
func (v *View) checkBehind(ctx context.Context, tags []string) error {
	if !v.keys.areThere() || len(tags) == 0 {
		return nil
	}
	later, err := v.laterVersions(ctx, tags)
	if err != nil {
		return err
	}
	has, known := v.ops(), map[digest.Digest]bool{}
	for n := 0; n < len(later); n++ {
		is := later[n]
		if known[is.Digest] {
			continue
		}
		known[is.Digest] = true
		lacks, err := v.lacksOp(ctx, is, has)
		if err != nil {
			return err
		}
		if lacks != "" {
			return v.behind(ctx, is, "has "+lacks+", which is neither in the channel nor in the registry any more")
		}
		if is.Previous == "" || is.Previous == v.Digest || is.Previous == v.Previous || known[is.Previous] {
			continue
		}
		before, err := v.p.past(ctx, is.Previous)
		switch {
		case errors.Is(err, release.ErrNotFound):
			return v.behind(ctx, is, "follows one that is not there any more")
		case err != nil:
			return err
		case before.Version > v.Version.Version && before.Channel == v.Channel && len(later) < 2*maxLater:
			later = append(later, before)
		}
	}
	return nil
}

// ops returns the tags of the ops that the channel has or can have, also of those that a freeze keeps out.
func (v *View) ops() map[string]bool {
	has := map[string]bool{}
	for _, op := range v.merged {
		has[op] = true
	}
	for _, op := range v.Pending {
		has[op.Tag] = true
	}
	for _, w := range v.Waiting {
		if known, ok := v.p.cache.op(v.Channel + " " + w.Op); ok && known.why == "" {
			has[w.Op] = true
		}
	}
	return has
}

// errLeftOut: a base was chosen, and no key says which later ops count.
var errLeftOut = errors.New("left out: it is not in the version that was chosen to build upon")

// errMoved: the channel names another version than a moment before.
var errMoved = errors.New("it has another version now")

// behind returns the error for a channel that went back; with KindRaced where another publisher has published since it
// was read.
func (v *View) behind(ctx context.Context, later Version, why string) error {
	is, err := v.p.head(ctx, v.Channel)
	switch {
	case err != nil:
		return err
	case is != v.head:
		return &Error{Kind: KindRaced, Object: v.Channel, Text: "read while another publisher published it", Err: errMoved}
	}
	return refuse(KindOlder, v.Channel, "the channel went back from %d to %d: version %d %s",
		later.Version, v.Version.Version, later.Version, why)
}

// lacksOp returns an op of a version that is not among these; "": it has no such op.
func (v *View) lacksOp(ctx context.Context, is Version, has map[string]bool) (string, error) {
	listed, err := v.p.mergedOps(ctx, is)
	switch {
	case errors.Is(err, release.ErrNotFound):
		return "a list of ops", nil
	case err != nil:
		return "", err
	}
	for _, op := range slices.Concat(is.Merged, listed) {
		if !has[op] {
			return op, nil
		}
	}
	return "", nil
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

// countTurns has the next op come after those that have changed releases: an older publisher, which knows no turns,
// keeps theirs and drops that of its channel.
func (v *View) countTurns(pages map[string]catalog.Page) {
	last := v.Turn
	for _, page := range pages {
		for _, r := range page.Releases {
			turn := max(r.Turn, turnOf(r.Again))
			if r.Withdrawn != nil {
				turn = max(turn, r.Withdrawn.Turn)
			}
			if turn > last && turn < v.Turn+furthest {
				last = turn
			}
		}
	}
	v.Turn = last
}

func turnOf(m *catalog.Mark) uint64 {
	if m == nil {
		return 0
	}
	return m.Turn
}

// with returns the channel as it is with more ops, which come after those that are pending.
func (v *View) with(more []catalog.Op) *View {
	next := &View{
		Version: v.Version, Pending: slices.Clone(v.Pending), p: v.p, keys: v.keys, head: v.head, tags: v.tags,
		merged: v.merged, isNext: v.isNext, pages: map[string]catalog.Page{},
	}
	for _, op := range more {
		op.Turn = ops.Next(v.Times, next.Pending...)
		next.Pending = append(next.Pending, op)
	}
	return next
}

// images are those of the version and of the pending ops, sorted.
func (v *View) images() []string {
	all := map[string]bool{}
	for _, ref := range v.Manifest.Pages {
		all[ref.Image] = true
	}
	for _, op := range v.Pending {
		for _, c := range op.Changes {
			all[c.Image] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// onlyOf returns ops with the changes of these images only.
func onlyOf(all []catalog.Op, images []string) []catalog.Op {
	wanted := map[string]bool{}
	for _, image := range images {
		wanted[image] = true
	}
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

// noChannel returns the error for a channel that is not there, with those that are.
func (p *Publisher) noChannel(ctx context.Context, channel string) error {
	channels, err := p.Channels(ctx)
	if err != nil {
		return err
	}
	e := refuse(KindChannel, channel, "%s has no such channel", p.repository)
	if e.Near = near(channel, channels); len(e.Near) == 0 && len(channels) > 0 {
		e.Text += ", only " + some(channels)
	}
	return e
}

// Channels lists the channels, sorted.
func (p *Publisher) Channels(ctx context.Context) ([]string, error) {
	tags, err := p.registry.Tags(ctx, p.repository)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, tag := range tags {
		if catalog.CheckChannel(tag) == nil {
			out = append(out, tag)
		}
	}
	slices.Sort(out)
	return out, nil
}

// ExistingChannels is Channels, with an error of KindChannel where there is none.
func (p *Publisher) ExistingChannels(ctx context.Context) ([]string, error) {
	channels, err := p.Channels(ctx)
	if err == nil && len(channels) == 0 {
		err = refuse(KindChannel, p.repository, "the catalog has no channel")
	}
	return channels, err
}

// Current is Read for callers that act on the releases of a channel: it also refuses a version if the registry shows a
// newer one.
func (p *Publisher) Current(ctx context.Context, channel string) (Version, error) {
	v, err := p.View(ctx, channel)
	if err != nil {
		return Version{}, err
	}
	return v.Version, nil
}

// Past returns the view of a version as it is.
func (p *Publisher) Past(v Version) *View {
	return &View{Version: v, p: p, head: v.Digest, pages: map[string]catalog.Page{}, isNext: true}
}

// Waits lists the ops of a channel that its newest version does not have, each with the reason. An op that another
// publisher folds in this moment is among them.
func (p *Publisher) Waits(ctx context.Context, channel string) ([]Waiting, error) {
	v, err := p.View(ctx, channel)
	if err != nil {
		return nil, err
	}
	out := append([]Waiting{}, v.Waiting...)
	for _, op := range v.Pending {
		out = append(out, Waiting{Op: op.Tag, Why: "the next publisher publishes it"})
	}
	return out, nil
}
