// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// recordSources records the result of each repository's source. A repository fails at most once per round, when any of
// its tags fails. The meter also counts followed tags that do not exist.
func (a *Asker) recordSources(ctx context.Context, round *Round, count bool) {
	failed, counted := map[string]bool{}, map[string]bool{}
	jitter := a.Jitter() // one per round: questions that failed together are retried together
	for _, q := range sortedKeys(round.results) {
		r := round.results[q]
		if r.err == nil || ctx.Err() != nil {
			continue
		}
		if count && !counted[q.Repository] {
			counted[q.Repository] = true
			a.count(r.err)
		}
		if r.failed() && !failed[q.Repository] {
			failed[q.Repository] = true
			a.Log.Warn("source does not answer", "image", q.String(), "err", r.err)
			recordFailure(a.Record, q.Repository, r.err, a.Now(), jitter)
		}
	}
	a.recordLists(ctx, round, count, failed, jitter)
	for q, r := range round.results {
		if r.failed() || failed[q.Repository] {
			continue
		}
		if _, ok := errors.AsType[*release.SourceError](r.err); ok {
			se := sourceError(r.err)
			r.by = release.Resolved{Host: se.Host, Mirror: se.Mirror}
		}
		kind := ""
		if round.listing.IsListed(q.Repository) || errors.Is(r.err, release.ErrUnlisted) {
			kind, r.by = record.SourceCatalog, round.listing.By
		}
		a.Record.Sources.Set(q.Repository, a.answeredBy(kind, r.by))
	}
}

// answeredBy returns the record of a source that has answered.
func (a *Asker) answeredBy(kind string, by release.Resolved) record.SourceRecord {
	s := record.SourceRecord{
		Kind: kind, Host: by.Host, Mirror: by.Mirror, Insecure: by.Insecure, HostsIgnored: by.HostsIgnored,
		LastSuccess: a.Now(),
	}
	if by.Skipped != nil {
		s.Skipped = by.Skipped.Answer()
	}
	return s
}

// recordLists records the failed tag lists of repositories whose followed tags were resolved: newer tags are unknown,
// so the source failed.
func (a *Asker) recordLists(ctx context.Context, round *Round, count bool, failed map[string]bool, jitter float64) {
	for _, q := range sortedKeys(round.results) {
		err := round.lists.failed[q.Repository]
		if err == nil || failed[q.Repository] || ctx.Err() != nil {
			continue
		}
		failed[q.Repository] = true
		if count {
			a.count(err)
		}
		a.Log.Warn("cannot get the tag list", "repository", q.Repository, "err", err)
		recordFailure(a.Record, q.Repository, err, a.Now(), jitter)
		s := a.Record.Sources[q.Repository]
		s.List = true
		a.Record.Sources.Set(q.Repository, s)
	}
}

// count counts a failure.
func (a *Asker) count(err error) {
	if a.Meter != nil {
		se := sourceError(err)
		a.Meter.Failed(se.Host, se.Cause)
	}
}

// NotePage records kubelet's pull of something other than an image as a failure of the repository's source: the host is
// the one that answered last.
func (a *Asker) NotePage(repository string, err error) {
	s := a.Record.Sources[repository]
	err = &release.SourceError{
		Repository: repository, Host: s.Host, Mirror: s.Mirror, Cause: release.CauseNoRegistry, Answered: true, Err: err,
	}
	a.count(err)
	recordFailure(a.Record, repository, err, a.Now(), a.Jitter())
}

// recordFailure records a failure and schedules the next request. An error without a request does not count as another
// failure.
func recordFailure(r *record.Record, repository string, err error, now time.Time, jitter float64) {
	s, se := r.Sources[repository], sourceError(err)
	if !se.Unasked || s.Failures == 0 {
		s.Failures++
	}
	s.List, s.Skipped = false, ""
	s.Error, s.Reason, s.Cause, s.HTTPStatus = err.Error(), se.Answer(), se.Cause, se.Status
	if se.Host != "" {
		s.Host, s.Mirror = se.Host, se.Mirror
	}
	s.RetryAt = policy.RetryTime(now, se.RetryAt, s.Failures, jitter)
	r.Sources.Set(repository, s)
}

// sourceError returns the SourceError in err, or a new one with err. Its Cause is set.
func sourceError(err error) release.SourceError {
	out := release.SourceError{Err: err}
	if se, ok := errors.AsType[*release.SourceError](err); ok {
		out = *se
	}
	out.Cause = cmp.Or(out.Cause, release.CauseOther)
	return out
}

// Retries returns when sources are asked again before the next poll: failed ones, and those whose rules have changed.
func Retries(r *record.Record, now time.Time) []time.Time {
	var at []time.Time
	for _, s := range r.Sources {
		if t, ok := s.NextRetry(now); ok {
			at = append(at, t)
		}
	}
	for _, o := range r.Offers {
		if t, ok := o.NextRetry(now); ok && r.Sources[o.Follow.Repository].Failures == 0 {
			at = append(at, t)
		}
	}
	return at
}
