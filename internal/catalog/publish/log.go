// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// Log returns the log of a channel, the oldest entry first. It has every op since the channel was made, also those that
// were pruned, as far as there is space for them.
func (p *Publisher) Log(ctx context.Context, v Version) ([]catalog.Entry, error) {
	parts := make([][]catalog.Entry, len(v.Log))
	err := each(ctx, v.Log, func(ctx context.Context, n int, ref catalog.BlobRef) error {
		p.step("reading part %d of %d of the log", n+1, len(parts))
		part, err := p.logPart(ctx, ref)
		if err == nil {
			parts[n], err = part.Entries()
		}
		return err
	})
	seen := map[string]bool{} // an op that was stored again is folded again
	all := slices.DeleteFunc(slices.Concat(parts...), func(e catalog.Entry) bool {
		again := seen[e.Tag]
		seen[e.Tag] = true
		return again
	})
	return all, err
}

// standing returns since when each release of a log is listed without being withdrawn, by member.
func standing(log []catalog.Entry) map[string]time.Time {
	log = slices.Clone(log)
	slices.SortFunc(log, func(a, b catalog.Entry) int { return strings.Compare(a.Tag, b.Tag) })
	since, withdrawn := map[string]time.Time{}, map[string]bool{}
	for _, e := range log {
		for _, c := range e.Changes {
			member := c.Member()
			_, listed := since[member]
			switch {
			case e.Do == catalog.ActionWithdraw:
				withdrawn[member] = true
				delete(since, member)
			case !listed && (e.Do == catalog.ActionPromote || !withdrawn[member]):
				since[member], withdrawn[member] = e.At, false
			}
		}
	}
	return since
}

func (p *Publisher) logPart(ctx context.Context, ref catalog.BlobRef) (catalog.Log, error) {
	data, err := p.blob(ctx, ref.Digest, ref.Size)
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	return catalog.UnpackLog(data, ref)
}

// logged returns the log of a draft's base with an entry for each op behind it.
func (p *Publisher) logged(
	ctx context.Context, d *draft, version uint64, ops []catalog.Op,
) ([]catalog.BlobRef, error) {
	entries := make([]catalog.Entry, 0, len(ops))
	for _, op := range ops {
		entries = append(entries, catalog.NewEntry(op, version))
	}
	slices.SortFunc(entries, func(a, b catalog.Entry) int { return cmp.Compare(a.Tag, b.Tag) })
	parts, err := catalog.NewLog(entries...)
	if err != nil || len(parts) == 0 {
		return d.base.Log, err
	}
	log := slices.Clone(d.base.Log)
	if log, parts[0], err = p.rejoin(ctx, log, parts[0]); err != nil {
		return nil, err
	}
	for _, part := range parts {
		data, err := part.Encode()
		if err != nil {
			return nil, err
		}
		log = append(log, catalog.BlobRef{Digest: d.add(data), Size: int64(len(data))})
	}
	return log[max(0, len(log)-catalog.MaxLogParts):], nil
}

// rejoined: the last part of a log is written again together with new entries if it has at most this many times their
// size. So a log has few parts, and an op adds few bytes.
const rejoined = 4

// rejoin takes small parts off the end of a log, and puts them before a new part.
func (p *Publisher) rejoin(
	ctx context.Context, log []catalog.BlobRef, part catalog.Log,
) ([]catalog.BlobRef, catalog.Log, error) {
	for len(log) > 0 {
		last := log[len(log)-1]
		data, err := part.Encode()
		if err != nil || last.Size > rejoined*int64(len(data)) {
			return log, part, err
		}
		before, err := p.logPart(ctx, last)
		if err != nil {
			return nil, nil, err
		}
		joined, ok := before.Join(part)
		if !ok {
			break
		}
		log, part = log[:len(log)-1], joined
	}
	return log, part, nil
}
