// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
	"github.com/kubic-project/image-update-agent/internal/catalog/store"
)

// draft is the next version of a channel.
type draft struct {
	view     *View
	manifest catalog.Manifest
	blobs    map[digest.Digest][]byte // what the manifest newly refers to
	ops      []catalog.Op             // that it folds, in their order
	isStored bool                     // under its version tag, and signed where there is a key
}

// isEmpty reports whether the channel has all that was asked for.
func (d draft) isEmpty() bool {
	return len(d.ops) == 0 && d.view.Digest != "" && d.view.head == d.view.Digest
}

// add notes a blob.
func (d *draft) add(data []byte) digest.Digest {
	sum := digest.FromBytes(data)
	d.blobs[sum] = data
	return sum
}

// entries are those of the log for the ops.
func (d draft) entries() []catalog.Entry {
	out := make([]catalog.Entry, len(d.ops))
	for n, op := range d.ops {
		out[n] = catalog.NewEntry(op, d.manifest.Version, d.manifest.Created)
	}
	return out
}

// draft folds the pending ops and these into the next version.
func (p *Publisher) draft(ctx context.Context, v *View, own ...catalog.Op) (draft, error) {
	d := draft{view: v, blobs: map[digest.Digest][]byte{}, ops: append(slices.Clone(v.Pending), own...)}
	slices.SortFunc(d.ops, func(a, b catalog.Op) int { return a.Mark().Compare(b.Mark()) })
	state, err := v.published(ctx, imagesOf(d.ops...)...)
	if err != nil {
		return d, err
	}
	state.Merged = v.listed(state.Merged)
	next, _ := ops.Fold(state, d.ops...)
	d.manifest = catalog.Manifest{
		Name: p.name, Channel: v.Channel, Version: v.nextVersion(), Created: p.now().UTC().Truncate(time.Second),
		Previous: v.Digest,
	}
	if err := p.fill(&d, next); err != nil {
		return d, err
	}
	if len(next.Merged) > 0 {
		data, err := catalog.EncodeOps(next.Merged)
		if err != nil {
			return d, err
		}
		d.manifest.Ops = catalog.BlobRef{Digest: d.add(data), Size: int64(len(data))}
	}
	if d.manifest.Log, err = p.logged(ctx, &d, v.Log); err != nil {
		return d, err
	}
	shards, err := d.manifest.ShardBlobs()
	maps.Copy(d.blobs, shards)
	if err == nil && v.head == v.Digest {
		err = p.adopt(ctx, &d)
	}
	return d, err
}

// fill has a draft say what its ops have made of the version before.
func (p *Publisher) fill(d *draft, next ops.State) error {
	m, tags := &d.manifest, make([]string, len(d.ops))
	for n, op := range d.ops {
		tags[n] = op.Tag
	}
	slices.Sort(tags)
	m.Times, m.Merged, m.Pages = next.Times, catalog.LastMerged(tags), slices.Clone(d.view.Manifest.Pages)
	for _, image := range slices.Sorted(maps.Keys(next.Pages)) {
		data, err := p.pages.Encode(next.Pages[image])
		if err != nil {
			return err
		}
		m.SetPage(catalog.PageRef{Image: image, Digest: d.add(data), Size: int64(len(data))})
	}
	return nil
}

// listed returns those of the ops that the registry lists: one that was pruned needs no place in the list of ops.
func (v *View) listed(merged []string) []string {
	listed := setOf(v.tags)
	return slices.DeleteFunc(slices.Clone(merged), func(op string) bool { return !listed[op] })
}

// adopt has a draft be a version that is stored already, and that says the same: its publisher was stopped before the
// channel named it, or the registry does not let the channel's tag move. Else each try would leave one more version
// behind.
func (p *Publisher) adopt(ctx context.Context, d *draft) error {
	v := d.view
	tags := laterTags(v.Version.Version, v.Channel, v.tags)
	if len(tags) == 0 {
		return nil
	}
	later, err := v.laterVersions(ctx, tags)
	if err != nil {
		return err
	}
	for _, is := range later {
		same := is.Manifest
		same.Version, same.Created, same.Log = d.manifest.Version, d.manifest.Created, d.manifest.Log
		if _, sum, err := is.Encode(); err != nil || sum != is.Digest || len(p.keys) > 0 && is.SignedBy == "" {
			continue
		}
		_, want, errWant := d.manifest.Encode()
		_, has, errHas := same.Encode()
		if errWant == nil && errHas == nil && has == want {
			d.manifest, d.isStored = is.Manifest, true
			return nil
		}
	}
	return nil
}

// publish stores a draft with these signatures; without any, with those of the publisher's keys. Its error has
// KindRaced where another publisher has published since the draft was made.
func (p *Publisher) publish(ctx context.Context, d draft, sigs ...string) error {
	body, sum, err := d.manifest.Encode()
	if err != nil {
		return err
	}
	tag := catalog.VersionTag(d.manifest.Channel, d.manifest.Version)
	if err := p.putBlobs(ctx, d.blobs); err != nil {
		return err
	}
	if err := p.checkBase(ctx, d, tag, sum); err != nil {
		return err
	}
	p.step("publishing %s", tag)
	if d.isStored {
		return p.moveTag(ctx, d.manifest.Channel, body)
	}
	if err := p.registry.PutManifest(ctx, p.repository, tag, body); err != nil {
		return err
	}
	payload, err := payloadOf(p.name, sum)
	if err == nil && len(sigs) == 0 {
		sigs, err = p.sign(payload)
	}
	if err != nil {
		return err
	}
	if len(sigs) > 0 {
		if err := p.putSignature(ctx, catalog.SignatureTag(sum), payload, sigs...); err != nil {
			return err
		}
	}
	return p.moveTag(ctx, d.manifest.Channel, body)
}

// sign returns the signatures of all keys.
func (p *Publisher) sign(data []byte) ([]string, error) {
	var out []string
	for _, key := range p.keys {
		sig, err := key.sign(data)
		if err != nil {
			return nil, err
		}
		out = append(out, sig)
	}
	return out, nil
}

// checkBase returns KindRaced if the channel has changed since a draft was made, or the version tag is taken. This does
// not prevent races, which the next round of merge ends. It makes them rare, so that nodes seldom see two manifests of
// one version.
func (p *Publisher) checkBase(ctx context.Context, d draft, tag string, sum digest.Digest) error {
	for _, at := range []struct {
		tag  string
		want digest.Digest
	}{{d.manifest.Channel, d.view.head}, {tag, ""}} {
		is, err := p.head(ctx, at.tag)
		if err != nil {
			return err
		}
		if is != at.want && is != sum {
			return refuse(KindRaced, at.tag, "another publisher has published it in the meantime, as %s", is)
		}
	}
	return nil
}

// putBlobs stores blobs.
func (p *Publisher) putBlobs(ctx context.Context, blobs map[digest.Digest][]byte) error {
	p.step("storing %d blobs", len(blobs))
	return each(ctx, p.jobs, slices.Sorted(maps.Keys(blobs)), func(ctx context.Context, _ int, d digest.Digest) error {
		if _, ok := p.cache.blobs.get(d); ok {
			return nil // the registry has it
		}
		_, err := p.registry.PutBlob(ctx, p.repository, blobs[d])
		if err == nil {
			p.cache.blobs.put(d, blobs[d], len(blobs[d]), maxCache) // read again to see whether the channel has the change
		}
		return err
	})
}

// putOp stores an op under its tag.
func (p *Publisher) putOp(ctx context.Context, op catalog.Op, k keys) error {
	data, err := op.Encode()
	if err != nil {
		return err
	}
	sigs, err := p.sign(data)
	if err != nil {
		return err
	}
	if len(sigs) > 0 {
		if op.SignedBy, err = k.signers(ctx, data, sigs); err != nil {
			return err
		}
	}
	body, err := catalog.OpManifest(data, sigs...)
	if err != nil {
		return err
	}
	if err := p.registry.PutManifest(ctx, p.repository, op.Tag, body); err != nil {
		return err
	}
	p.cache.ops.put(op.Channel+" "+op.Tag, cachedOp{op: op}, 0, 0)
	return nil
}

// probes are the two manifests that try whether the tag of a channel moves. Nodes refuse their type. They differ
// between channels, so that deleting them touches no other channel.
func probes(channel string) [2][]byte {
	const form = `{"schemaVersion":2,"mediaType":%q,"artifactType":"application/vnd.kubic.image-catalog.probe.v1",` +
		`"config":%[2]s,"layers":[%[2]s],` +
		`"annotations":{"org.kubic.image-catalog.channel":%[3]q,"org.kubic.image-catalog.probe":"%[4]d"}}`
	nothing := fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":2}`,
		ocispec.MediaTypeEmptyJSON, ocispec.DescriptorEmptyJSON.Digest)
	var out [2][]byte
	for n := range out {
		out[n] = fmt.Appendf(nil, form, ocispec.MediaTypeImageManifest, nothing, channel, n)
	}
	return out
}

// isProbe reports whether what a channel's tag names was left by a publisher that was stopped while it tried the tag,
// or that the registry did not let delete it.
func isProbe(channel string, d digest.Digest) bool {
	for _, body := range probes(channel) {
		if digest.FromBytes(body) == d {
			return true
		}
	}
	return false
}

// checkMovable refuses to make a channel whose tag would not move, before anything of the channel is written. Only the
// tag itself tells: registries make tags immutable by pattern. It deletes what it has written. It ends where another
// publisher makes the channel. A registry has no write that spares what another one has just written: between the last
// look and the write the other publisher's version can lose the tag, until the first version of this one has both.
func (p *Publisher) checkMovable(ctx context.Context, channel string) error {
	p.step("checking that the tag %s can move", channel)
	all := probes(channel)
	is, err := p.registry.Head(ctx, p.repository, channel)
	if errors.Is(err, release.ErrNotFound) {
		is, err = p.probe(ctx, channel, all[0])
	}
	switch {
	case err != nil:
		return err
	case !isProbe(channel, is):
		return nil // another publisher makes the channel, or has made it
	case is == digest.FromBytes(all[1]): // what an earlier try has left
		slices.Reverse(all[:])
	}
	moved := p.moveTag(ctx, channel, all[1])
	var left error
	for _, body := range all {
		left = errors.Join(left, p.registry.Remove(ctx, p.repository, digest.FromBytes(body)))
	}
	if e, ok := errors.AsType[*Error](moved); ok && left != nil {
		e.Text += "; delete this tag, which was only a test"
	}
	return moved // the first version of the channel replaces what is left
}

// probe moves the tag of a channel to a manifest, and returns what it names then; empty: another publisher makes the
// channel, whose tag is to be left alone.
func (p *Publisher) probe(ctx context.Context, channel string, body []byte) (digest.Digest, error) {
	tags, err := p.registry.Tags(ctx, p.repository)
	isOfChannel := func(tag string) bool {
		of, isOp := catalog.OpChannel(tag)
		if !isOp {
			of, _, _ = catalog.ParseVersionTag(tag)
		}
		return of == channel
	}
	if err != nil || slices.ContainsFunc(tags, isOfChannel) {
		return "", err
	}
	if err := p.registry.PutManifest(ctx, p.repository, channel, body); err != nil {
		return "", err
	}
	is, err := p.registry.Head(ctx, p.repository, channel)
	if errors.Is(err, release.ErrNotFound) {
		return "", nil // another publisher tries the tag, too, and has deleted it
	}
	return is, err
}

// moveTag moves the tag of a channel to a manifest. Its error has KindImmutable if the registry allows pushes, but not
// of this tag: with 412 (Harbor), 400 (ECR), 403, 405 or 409.
func (p *Publisher) moveTag(ctx context.Context, channel string, body []byte) error {
	err := p.registry.PutManifest(ctx, p.repository, channel, body)
	if slices.Contains([]int{
		http.StatusPreconditionFailed, http.StatusBadRequest, http.StatusForbidden, http.StatusMethodNotAllowed,
		http.StatusConflict,
	}, store.Status(err)) {
		return &Error{Kind: KindImmutable, Object: channel, Text: "the registry does not let this tag move", Err: err}
	}
	return err
}
