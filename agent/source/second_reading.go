// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/wait"
)

// maxReadings limits how often a round reads a tag until two consecutive readings agree.
const maxReadings = 4

// secondReading resolves the new tags of a round again.
type secondReading struct {
	*Round
	confirmed map[release.Reference]bool // two consecutive readings agreed
}

// confirmNew resolves digests that are new to the node a second time, after ConfirmAfter. Registries show digests that
// are gone seconds later: OBS moves a tag that it cannot delete to a broken manifest first, and mirrors replace their
// tags one by one.
func confirmNew(ctx context.Context, round *Round) {
	if round.asker.Policy.ConfirmAfter <= 0 {
		return
	}
	s := secondReading{round, map[release.Reference]bool{}}
	for range maxReadings - 1 {
		refs := s.newTags()
		if len(refs) == 0 || s.wait(ctx, refs) != nil {
			break
		}
		s.readAgain(ctx, refs)
	}
	for _, ref := range s.newTags() {
		s.reject(ref)
	}
	s.markUnread()
}

// readAgain resolves tags again, and answers the questions about repositories whose tags
// have changed.
func (s *secondReading) readAgain(ctx context.Context, refs []release.Reference) {
	changed := map[string]bool{}
	for _, ref := range refs {
		var again resolution
		again.Resolved, again.err = s.askTag(ctx, ref, "")
		if again.err != nil && ctx.Err() != nil {
			break
		}
		if again.Digest == s.resolved[ref].Digest {
			s.confirmed[ref] = true
			continue
		}
		s.resolved[ref] = again
		changed[ref.Repository] = true
	}
	for _, q := range sortedKeys(s.results) {
		if changed[q.Repository] {
			s.ask(ctx, q)
		}
	}
}

// newTags returns the tags whose digests are offered, new and not confirmed, sorted. A digest is new if it differs from
// the last answer, or without an answer, if the node does not have it.
func (s *secondReading) newTags() []release.Reference {
	out := map[release.Reference]bool{}
	for q, r := range s.results {
		if r.err != nil || s.listing.IsListed(q.Repository) {
			continue // a catalog is signed as a whole
		}
		last, ok := s.asker.Record.Offers[q.String()]
		for _, rel := range []release.Release{r.offer.Follow, r.offer.Newest} {
			ref := release.Reference{Repository: rel.Repository, Tag: rel.Tag}
			if (ok || !s.held[rel.Digest]) && !s.confirmed[ref] && !wasOffered(last, rel) {
				out[ref] = true
			}
		}
	}
	return sortedKeys(out)
}

func wasOffered(last record.Answer, r release.Release) bool {
	is := func(o release.Release) bool { return o.Tag == r.Tag && o.Digest == r.Digest }
	return is(last.Follow) || is(last.Newest) || slices.ContainsFunc(last.Newer, func(c record.Candidate) bool {
		return c.Confirmed && is(c.Release)
	})
}

// reject withdraws offers of a tag that named another digest at each reading.
func (s *secondReading) reject(ref release.Reference) {
	text := fmt.Sprintf("named another digest each of the %d times it was read", maxReadings)
	for q, r := range s.results {
		switch {
		case q.Repository != ref.Repository:
			continue
		case r.offer.Follow.Tag == ref.Tag:
			r.err = fmt.Errorf("%s: %s", ref, text)
		case r.offer.Newest.Tag == ref.Tag:
			n := slices.IndexFunc(r.offer.Newer, func(c record.Candidate) bool { return c.Tag == ref.Tag })
			r.offer.Newer[n].Refusal = &policy.Refusal{Tag: ref.Tag, Rule: policy.RuleConfirm, Reason: text}
			r.offer.Newer[n].Confirmed = false
			r.offer.Newest = r.offer.Follow
		default:
			continue
		}
		r.confirmed = false
		s.results[q] = r
	}
}

// markUnread marks candidates that the rules skipped and that were read only once: other rules must not offer them
// without a second reading.
func (s *secondReading) markUnread() {
	for q, r := range s.results {
		for n, c := range r.offer.Newer {
			if c.Tag != r.offer.Newest.Tag && !wasOffered(s.asker.Record.Offers[q.String()], c.Release) {
				r.offer.Newer[n].Confirmed = false
			}
		}
	}
}

// wait waits for ConfirmAfter. The time before an interruption counts.
func (s *secondReading) wait(ctx context.Context, refs []release.Reference) error {
	a := s.asker
	if s.readAgainAt.IsZero() {
		s.readAgainAt = a.Now().Add(a.Policy.ConfirmAfter)
	}
	d := min(s.readAgainAt.Sub(a.Now()), a.Policy.ConfirmAfter)
	a.Log.Info("waiting before reading new digests again", "tags", len(refs), "after", d)
	confirming := status.Progress{Reference: refs[0].String(), Phase: status.PhaseConfirming}
	a.Progress.Report(confirming)
	defer func() { a.Progress.End(confirming, ctx.Err()) }()
	defer a.Progress.Heartbeat()()
	if err := wait.For(ctx, d); err != nil {
		return err
	}
	s.readAgainAt = time.Time{}
	return nil
}
