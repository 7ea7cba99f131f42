// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/store"
)

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
		e.Text += "; delete the tag, which was made to find out"
	}
	return moved // the first version of the channel replaces what is left
}

// probe has the tag of a channel name a manifest, and returns what it names then; empty: another publisher makes the
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

// moveTag has the tag of a channel name a manifest. Its error has KindImmutable if the registry allows pushes, but not
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
