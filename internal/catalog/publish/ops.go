// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/store"
)

// mergedOps returns the ops that a version has folded.
func (p *Publisher) mergedOps(ctx context.Context, v Version) ([]string, error) {
	if v.Ops.Digest == "" {
		return nil, nil
	}
	data, err := p.blob(ctx, v.Ops.Digest, v.Ops.Size)
	if err != nil {
		return nil, fmt.Errorf("list of ops: %w", err)
	}
	return catalog.DecodeOps(data, v.Ops)
}

// readOps reads ops by their tags. Those that cannot be folded wait.
func (p *Publisher) readOps(ctx context.Context, tags []string) ([]catalog.Op, []Waiting, error) {
	ops, waits := make([]catalog.Op, len(tags)), make([]string, len(tags))
	if len(tags) > 0 {
		p.step("reading %d ops", len(tags))
	}
	err := each(ctx, tags, func(ctx context.Context, n int, tag string) error {
		if op, ok := p.cache.op(tag); ok {
			ops[n] = op
			return nil
		}
		_, body, err := p.client.Manifest(ctx, p.repository, tag)
		if errors.Is(err, release.ErrNotFound) {
			waits[n] = "the registry lists it and does not have it"
			return nil
		}
		if err != nil {
			return err
		}
		if ops[n], err = p.readOp(ctx, tag, body); err != nil {
			waits[n] = err.Error()
			return nil //nolint:nilerr // one bad op stops no other
		}
		p.cache.addOp(ops[n])
		return nil
	})
	var good []catalog.Op
	var waiting []Waiting
	for n, tag := range tags {
		if waits[n] == "" {
			good = append(good, ops[n])
		} else {
			waiting = append(waiting, Waiting{Op: tag, Why: waits[n]})
		}
	}
	return good, waiting, err
}

// readOp decodes an op and checks its signature.
func (p *Publisher) readOp(ctx context.Context, tag string, body []byte) (catalog.Op, error) {
	data, sig, err := catalog.ReadOpManifest(body)
	if err != nil {
		return catalog.Op{}, err
	}
	key := ""
	if p.verifier != nil {
		if sig == "" {
			return catalog.Op{}, errors.New("not signed")
		}
		if key, err = p.verifier.VerifyBytes(ctx, data, sig); err != nil {
			return catalog.Op{}, err
		}
	}
	op, err := catalog.DecodeOp(tag, data)
	op.SignedBy = key
	if err == nil && op.Name != p.name {
		err = fmt.Errorf("it is for %s", op.Name)
	}
	return op, err
}

// putOp stores an op under its tag.
func (p *Publisher) putOp(ctx context.Context, op catalog.Op) error {
	data, err := op.Encode()
	if err != nil {
		return err
	}
	sig := ""
	if len(p.keys) > 0 {
		if sig, err = p.keys[0].sign(data); err != nil {
			return err
		}
		if op.SignedBy, err = p.verifier.VerifyBytes(ctx, data, sig); err != nil {
			return err
		}
	}
	body, err := catalog.OpManifest(data, sig)
	if err != nil {
		return err
	}
	if err := p.client.PutManifest(ctx, p.repository, op.Tag, body); err != nil {
		return err
	}
	p.cache.addOp(op)
	return nil
}

// awaitListed waits until the registry lists the tags of ops, because other publishers fold listed ops only.
func (p *Publisher) awaitListed(ctx context.Context, channel string, ops []catalog.Op) error {
	for attempt := 1; ; attempt++ {
		tags, err := p.client.Tags(ctx, p.repository)
		if err != nil {
			return err
		}
		missing := slices.IndexFunc(ops, func(op catalog.Op) bool { return !slices.Contains(tags, op.Tag) })
		switch {
		case missing < 0, p.has(ctx, channel, ops):
			return nil
		case attempt == store.MaxAttempts:
			return refuse(KindTimeout, ops[missing].Tag, "stored, but %s does not list it", p.repository)
		}
		if err := store.BackOff(ctx, attempt); err != nil {
			return err
		}
	}
}

// has reports whether a channel has the changes of ops that other publishers have folded and deleted already.
func (p *Publisher) has(ctx context.Context, channel string, ops []catalog.Op) bool {
	v, err := p.Read(ctx, channel)
	if err != nil {
		return false
	}
	lost, err := p.lost(ctx, v, ops)
	return err == nil && len(lost) == 0
}
