// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
)

// Log returns the log of a channel, the oldest entry first. It has every op since the channel was made, also those that
// were pruned, as far as there is space for them.
func (r *reader) Log(ctx context.Context, v Version) ([]catalog.Entry, error) {
	all, err := r.entries(ctx, v)
	seen := map[string]bool{} // an op that was stored again is folded again
	all = slices.DeleteFunc(all, func(e catalog.Entry) bool {
		again := seen[e.Tag]
		seen[e.Tag] = true
		return again
	})
	return all, err
}

// entries returns a log as it is: an op that was folded again is in it again.
func (r *reader) entries(ctx context.Context, v Version) ([]catalog.Entry, error) {
	parts := make([][]catalog.Entry, len(v.Log))
	err := each(ctx, r.jobs, v.Log, func(ctx context.Context, n int, ref catalog.BlobRef) error {
		r.step("reading part %d of %d of the log", n+1, len(parts))
		part, err := r.logPart(ctx, ref)
		if err == nil {
			parts[n], err = part.Entries()
		}
		return err
	})
	return slices.Concat(parts...), err
}

// standing returns since when each release of a log is listed without being withdrawn, by member: since the version
// that was the first to say so. The time that an op names is its publisher's, which may be any.
func standing(log []catalog.Entry) map[string]time.Time {
	log = slices.Clone(log)
	slices.SortStableFunc(log, func(a, b catalog.Entry) int { return a.Mark().Compare(b.Mark()) })
	since, withdrawn := map[string]time.Time{}, map[string]bool{}
	for _, e := range log {
		at := e.At
		if e.Published.After(at) || e.At.After(e.Published.Add(ops.Ahead)) && !e.Published.IsZero() {
			at = e.Published
		}
		for _, c := range e.Changes {
			member := c.Member()
			_, listed := since[member]
			isOffered := e.Do == catalog.ActionAdd && !withdrawn[member] ||
				e.Do == catalog.ActionPromote && (e.Again || e.Turn == 0 || !withdrawn[member])
			switch {
			case e.Do == catalog.ActionWithdraw:
				withdrawn[member] = true
				delete(since, member)
			case !listed && isOffered:
				since[member], withdrawn[member] = at, false
			}
		}
	}
	return since
}

func (r *reader) logPart(ctx context.Context, ref catalog.BlobRef) (catalog.Log, error) {
	data, err := r.blob(ctx, ref.Digest, ref.Size)
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	return catalog.UnpackLog(data, ref)
}

// logged returns a log with the entries of a draft behind it.
func (r *reader) logged(ctx context.Context, d *draft, before []catalog.BlobRef) ([]catalog.BlobRef, error) {
	parts, err := catalog.NewLog(d.entries()...)
	if err != nil || len(parts) == 0 {
		return before, err
	}
	log := slices.Clone(before)
	if log, parts[0], err = r.rejoin(ctx, log, parts[0]); err != nil {
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
func (r *reader) rejoin(
	ctx context.Context, log []catalog.BlobRef, part catalog.Log,
) ([]catalog.BlobRef, catalog.Log, error) {
	for len(log) > 0 {
		last := log[len(log)-1]
		data, err := part.Encode()
		if err != nil || last.Size > rejoined*int64(len(data)) {
			return log, part, err
		}
		before, err := r.logPart(ctx, last)
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

// Outcome is the result of one change.
type Outcome = ops.Note

// Other is an op that is in the version, and that the request did not ask for.
type Other struct {
	Op       string         `json:"op"`
	Do       catalog.Action `json:"do"`
	By       string         `json:"by,omitempty"`
	Run      string         `json:"run,omitempty"` // URL of the CI job
	At       time.Time      `json:"at"`
	Reason   string         `json:"reason,omitempty"`
	Keys     []string       `json:"keys,omitempty"` // fingerprints of those that signed it
	Releases []string       `json:"releases,omitempty"`
}

// othersOf are those of a log's entries that are not of these ops.
func othersOf(log []catalog.Entry, own map[string]bool) []Other {
	out := []Other{}
	for _, e := range log {
		if own[e.Tag] {
			continue
		}
		o := Other{Op: e.Tag, Do: e.Do, By: e.By, Run: e.Run, At: e.At, Reason: e.Reason, Keys: e.Keys}
		if len(o.Keys) == 0 && e.Key != "" {
			o.Keys = []string{e.Key}
		}
		for _, c := range e.Changes {
			o.Releases = append(o.Releases, c.Member())
		}
		out = append(out, o)
	}
	return out
}

// Result is the result of a request.
type Result struct {
	Channel  string        `json:"channel"`
	Version  uint64        `json:"version"`
	Digest   digest.Digest `json:"digest"` // empty for a dry run
	Expires  time.Time     `json:"expires,omitzero"`
	Frozen   time.Time     `json:"frozen,omitzero"` // until then
	Changed  bool          `json:"changed"`
	Outcomes []Outcome     `json:"releases"`
	// Others are changes by others that came into the channel with this request or while it was made.
	Others  []Other   `json:"others"`
	Waiting []Waiting `json:"waiting"`
}

// at returns the result for a version of the channel, with lists for programs.
func (r Result) at(v Version) Result {
	r.Version, r.Digest, r.Expires, r.Frozen = v.Version, v.Digest, v.Expires, v.Frozen
	if r.Waiting == nil {
		r.Waiting = []Waiting{}
	}
	if r.Outcomes == nil {
		r.Outcomes = []Outcome{}
	}
	if r.Others == nil {
		r.Others = []Other{}
	}
	return r
}
