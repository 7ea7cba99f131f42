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

	"github.com/kubic-project/image-update-agent/agent/release"
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
// next version. Where another publisher publishes in the meantime, it begins anew.
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
	state := catalog.State{Expires: base.Expires, Refreshed: base.Refreshed}
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
	d.waiting = waiting
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
	d.manifest = m
	return nil
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
		settled := d.base.Digest != "" && !d.lacks(must)
		if settled && wrote {
			settled, err = p.isTagged(ctx, d.base)
		}
		switch {
		case err != nil:
		case settled:
			return d, nil
		case !wrote || d.lacks(own) || !d.lacks(must) || patience > maxPatience:
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

// isTagged reports whether the version tag of a channel's manifest names this manifest. It does not
// where two publishers have published the same version, and their writes have crossed: then nodes
// get another version, which all of them take.
func (p *Publisher) isTagged(ctx context.Context, v Version) (bool, error) {
	is, err := p.client.Head(ctx, p.repository, catalog.VersionTag(v.Channel, v.Version))
	if errors.Is(err, release.ErrNotFound) {
		return false, nil
	}
	return is == v.Digest, err
}

// maxPatience is how often a publisher waits for another one to fold its op.
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
		return p.client.PutManifest(ctx, p.repository, d.manifest.Channel, body)
	}
	if err := p.client.PutManifest(ctx, p.repository, tag, body); err != nil {
		return err
	}
	if p.key != nil {
		payload, err := payloadOf(p.name, sum)
		if err != nil {
			return err
		}
		sig, err := p.key.sign(payload)
		if err != nil {
			return err
		}
		if err := p.putSignature(ctx, catalog.SignatureTag(sum), payload, sig); err != nil {
			return err
		}
	}
	return p.client.PutManifest(ctx, p.repository, d.manifest.Channel, body)
}

// checkBase returns KindRaced where a channel is not what a draft was built upon, or its version
// tag is taken. This does not prevent races, which the next round of merge ends. It makes them
// rare, so that nodes seldom see two manifests of one version.
func (p *Publisher) checkBase(ctx context.Context, base Version, channel, tag string, sum digest.Digest) error {
	for what, want := range map[string]digest.Digest{channel: base.Digest, tag: ""} {
		is, err := p.client.Head(ctx, p.repository, what)
		if errors.Is(err, release.ErrNotFound) {
			is, err = "", nil
		}
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
		_, err := p.client.PutBlob(ctx, p.repository, blobs[d])
		return err
	})
}
