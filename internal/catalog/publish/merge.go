// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/store"
)

// Waiting is an op that is not folded, and why.
type Waiting struct {
	Op  string `json:"op"`
	Why string `json:"why"`
}

// draft is the next version of a channel.
type draft struct {
	base     Version
	manifest catalog.Manifest
	blobs    map[digest.Digest][]byte // what the manifest newly refers to
	pending  map[string]bool          // the ops that it folds
	waiting  []Waiting
	isStored bool // under its version tag, and signed where there is a key
	isBelow  bool // base is below another version tag
}

// isEmpty reports whether the channel has all that was asked for.
func (d draft) isEmpty() bool { return len(d.pending) == 0 && d.base.Digest != "" }

// lacks reports whether the channel lacks one of these ops.
func (d draft) lacks(ops map[string]bool) bool {
	for op := range d.pending {
		if ops[op] {
			return true
		}
	}
	return false
}

// prepare reads a channel and the ops that it lacks, folds these and extra ones, and returns the
// next version. If another publisher publishes in the meantime, it begins again.
func (p *Publisher) prepare(ctx context.Context, channel string, isNew bool, extra ...catalog.Op) (draft, error) {
	for attempt := 1; ; attempt++ {
		d, err := p.prepareOnce(ctx, channel, isNew, extra...)
		if !errors.Is(err, errMoved) || attempt == store.MaxAttempts {
			return d, err
		}
		if err := store.BackOff(ctx, attempt); err != nil {
			return d, err
		}
	}
}

func (p *Publisher) prepareOnce(ctx context.Context, channel string, isNew bool, extra ...catalog.Op) (draft, error) {
	base, err := p.Read(ctx, channel)
	if isNew && isKind(err, KindChannel) {
		base, err = Version{}, nil
	}
	if err != nil {
		return draft{}, err
	}
	tags, err := p.client.Tags(ctx, p.repository)
	if err != nil {
		return draft{}, err
	}
	state := stateOf(base)
	if state.Merged, err = p.mergedOps(ctx, base); err != nil {
		return draft{}, err
	}
	d := draft{base: base, blobs: map[digest.Digest][]byte{}}
	ops, waiting, err := p.readOps(ctx, pendingOps(channel, tags, state.Merged))
	if err != nil {
		return draft{}, err
	}
	if err := p.checkBehind(ctx, base, channel, tags, state.Merged, ops); err != nil {
		return draft{}, err
	}
	d.waiting, d.isBelow = waiting, len(laterTags(base.Version, channel, tags)) > 0
	ops = append(ops, extra...)
	// An op that was pruned needs no place in the list.
	listed := map[string]bool{}
	for _, tag := range tags {
		listed[tag] = true
	}
	state.Merged = slices.DeleteFunc(state.Merged, func(op string) bool { return !listed[op] })
	if err := p.fold(ctx, &d, state, channel, tags, ops); err != nil {
		return d, err
	}
	return d, p.adopt(ctx, &d, tags)
}

// fold folds ops into a draft.
func (p *Publisher) fold(
	ctx context.Context, d *draft, state catalog.State, channel string, tags []string, ops []catalog.Op,
) error {
	images := []string{}
	d.pending = map[string]bool{}
	for _, op := range ops {
		for _, c := range op.Changes {
			images = append(images, c.Image)
		}
		d.pending[op.Tag] = true
	}
	slices.Sort(images)
	var err error
	if state.Pages, err = p.Pages(ctx, d.base, slices.Compact(images)...); err != nil {
		return err
	}
	next, _ := catalog.Fold(state, ops...)
	m := catalog.Manifest{
		Name: p.name, Channel: channel, Version: nextVersion(d.base, channel, tags),
		Created: p.now().UTC().Truncate(time.Second), Expires: next.Expires, Refreshed: next.Refreshed,
		Frozen: next.Frozen, Freeze: next.Freeze,
		Previous: d.base.Digest, Merged: catalog.LastMerged(slices.Sorted(maps.Keys(d.pending))),
		Pages: slices.Clone(d.base.Pages),
	}
	for _, image := range slices.Sorted(maps.Keys(next.Pages)) {
		data, err := next.Pages[image].Encode()
		if err != nil {
			return err
		}
		m.SetPage(catalog.PageRef{Image: image, Digest: d.add(data), Size: int64(len(data))})
	}
	if len(next.Merged) > 0 {
		data, err := catalog.EncodeOps(next.Merged)
		if err != nil {
			return err
		}
		m.Ops = catalog.BlobRef{Digest: d.add(data), Size: int64(len(data))}
	}
	if m.Log, err = p.logged(ctx, d, m.Version, ops); err != nil {
		return err
	}
	shards, err := m.ShardBlobs()
	maps.Copy(d.blobs, shards)
	d.manifest = m
	return err
}

// add notes a blob.
func (d *draft) add(data []byte) digest.Digest {
	sum := digest.FromBytes(data)
	d.blobs[sum] = data
	return sum
}

// furthest is how far above the channel's version a version tag counts: whoever may push could
// else use up all numbers.
const furthest = 1 << 20

// nextVersion is one above the channel's and all of its version tags.
func nextVersion(base Version, channel string, tags []string) uint64 {
	highest := base.Version
	for _, tag := range tags {
		of, version, ok := catalog.ParseVersionTag(tag)
		if ok && of == channel && version > highest && version-base.Version < furthest {
			highest = version
		}
	}
	return highest + 1
}

// merge publishes versions until the channel has its own ops, and all that waited before, and it
// returns the channel as it then is.
//
// What it publishes may replace what another publisher has published a moment before. So after
// it has published, it reads the list of ops once more: all that are in it must come into the
// channel, too. Ops that appear later are safe, as nothing is published after them here. Those
// of others it leaves to their publishers for a while: eight that fold each other's ops would
// never end.
func (p *Publisher) merge(
	ctx context.Context, channel string, isNew bool, ops ...catalog.Op,
) (draft, error) {
	own, must := map[string]bool{}, map[string]bool{}
	for _, op := range ops {
		own[op.Tag] = true
	}
	begun, wrote := true, false // begun: the next list says what must come into the channel
	for patience := 1; ; {
		d, err := p.prepare(ctx, channel, isNew)
		if err != nil {
			return d, err
		}
		if begun {
			must, begun = maps.Clone(d.pending), false
			maps.Copy(must, own)
		}
		settled, err := p.isSettled(ctx, d, must, wrote)
		switch {
		case err != nil:
		case settled:
			return d, nil
		case !wrote || d.lacks(own) || !d.lacks(must) && !d.isBelow || patience > maxPatience:
			if err = p.publish(ctx, d); err == nil {
				begun, wrote, patience = true, true, 1
			}
		default:
			err = store.BackOff(ctx, patience)
			patience++
		}
		if isKind(err, KindRaced) { // the next round builds upon what the other one has published
			err = store.BackOff(ctx, 1)
		}
		if err != nil {
			return d, err
		}
	}
}

// isSettled reports whether a draft's channel has all ops that must be in it. If this publisher wrote, the channel must
// also be the newest.
func (p *Publisher) isSettled(ctx context.Context, d draft, must map[string]bool, wrote bool) (bool, error) {
	if d.base.Digest == "" || d.lacks(must) {
		return false, nil
	}
	if !wrote {
		return true, nil
	}
	return p.isNewest(ctx, d)
}

// isNewest reports whether all nodes take the channel's manifest. They do not where the writes of two publishers have
// crossed: another manifest has the same version, or a higher one. Then they need another version.
func (p *Publisher) isNewest(ctx context.Context, d draft) (bool, error) {
	if d.isBelow {
		return false, nil
	}
	v := d.base
	is, err := p.head(ctx, catalog.VersionTag(v.Channel, v.Version))
	return is == v.Digest, err
}

// maxPatience is how often a publisher waits for another one to fold its op, or to name the channel after a version.
const maxPatience = 3

// publish stores a draft with its signature. Its error has KindRaced where another publisher has
// published since the draft was made.
func (p *Publisher) publish(ctx context.Context, d draft) error {
	body, sum, err := d.manifest.Encode()
	if err != nil {
		return err
	}
	tag := catalog.VersionTag(d.manifest.Channel, d.manifest.Version)
	if err := p.putBlobs(ctx, d.blobs); err != nil {
		return err
	}
	if err := p.checkBase(ctx, d.base, d.manifest.Channel, tag, sum); err != nil {
		return err
	}
	p.step("publishing %s", tag)
	if d.isStored {
		return p.moveTag(ctx, d.manifest.Channel, body)
	}
	if err := p.client.PutManifest(ctx, p.repository, tag, body); err != nil {
		return err
	}
	if len(p.keys) > 0 {
		payload, err := payloadOf(p.name, sum)
		if err != nil {
			return err
		}
		var sigs []string
		for _, key := range p.keys {
			sig, err := key.sign(payload)
			if err != nil {
				return err
			}
			sigs = append(sigs, sig)
		}
		if err := p.putSignature(ctx, catalog.SignatureTag(sum), payload, sigs...); err != nil {
			return err
		}
	}
	return p.moveTag(ctx, d.manifest.Channel, body)
}

// checkBase returns KindRaced if the channel has changed since a draft was made, or the version
// tag is taken. This does not prevent races, which the next round of merge ends. It makes them
// rare, so that nodes seldom see two manifests of one version.
func (p *Publisher) checkBase(ctx context.Context, base Version, channel, tag string, sum digest.Digest) error {
	for what, want := range map[string]digest.Digest{channel: base.Digest, tag: ""} {
		is, err := p.head(ctx, what)
		if err != nil {
			return err
		}
		if is != want && is != sum {
			return refuse(KindRaced, what,
				"another publisher has published it in the meantime, as %s", strings.ToLower(string(is)))
		}
	}
	return nil
}

// putBlobs stores blobs.
func (p *Publisher) putBlobs(ctx context.Context, blobs map[digest.Digest][]byte) error {
	p.step("storing %d blobs", len(blobs))
	return each(ctx, slices.Sorted(maps.Keys(blobs)), func(ctx context.Context, _ int, d digest.Digest) error {
		if _, ok := p.cache.blob(d); ok {
			return nil // the registry has it
		}
		_, err := p.client.PutBlob(ctx, p.repository, blobs[d])
		if err == nil {
			p.cache.addBlob(d, blobs[d]) // read again to see whether the channel has the change
		}
		return err
	})
}
