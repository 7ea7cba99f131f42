// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// noteAnswer keeps that a repository's source answered.
func noteAnswer(r *Record, repository string, last Resolved, now time.Time) {
	r.Sources.Set(repository, SourceRecord{
		Host: last.Host, Mirror: last.Mirror, Insecure: last.Insecure, LastSuccess: now,
	})
}

// noteFailure keeps that it did not, what it said instead, and when it is asked
// again. A source that was not even asked has not failed once more.
func noteFailure(r *Record, repository string, err error, now time.Time, jitter float64) {
	s := r.Sources[repository]
	se, ok := errors.AsType[*SourceError](err)
	if !ok {
		se = &SourceError{Err: err}
	}
	if !se.Unasked || s.Failures == 0 {
		s.Failures++
	}
	s.Error, s.Reason = err.Error(), se.Answer()
	s.Cause, s.HTTPStatus = cmp.Or(se.Cause, CauseOther), se.Status
	if se.Host != "" {
		s.Host, s.Mirror = se.Host, se.Mirror
	}
	s.RetryAt = RetryTime(now, se.RetryAt, s.Failures, jitter)
	r.Sources.Set(repository, s)
}

// answerer is the host that gave an answer which is an error.
func answerer(err error, last Resolved) Resolved {
	if se, ok := errors.AsType[*SourceError](err); ok {
		return Resolved{Host: se.Host, Mirror: se.Mirror}
	}
	return last
}

// leastFailedFirst is the order of asking. Who has failed often may make its
// host be left alone for a while; the others must have had their turn by then.
func (a *Asker) leastFailedFirst(qs []Question) []Question {
	out := slices.Clone(qs)
	slices.SortStableFunc(out, func(x, y Question) int {
		return cmp.Compare(a.Record.Sources[x.Repository].Failures, a.Record.Sources[y.Repository].Failures)
	})
	return out
}

// noteSources keeps how each repository's source answered: one failure of any
// of its tags is a failure of the repository, counted once a round.
func (a *Asker) noteSources(ctx context.Context, asked *Round) {
	failed := map[string]bool{}
	jitter := a.Jitter() // one a round: what failed together is retried together, in one cycle
	for _, q := range asked.questions() {
		r := asked.results[q]
		if r.failed() && ctx.Err() == nil && !failed[q.Repository] {
			failed[q.Repository] = true
			a.Log.Warn("source does not answer", "image", q.String(), "err", r.err)
			noteFailure(a.Record, q.Repository, r.err, a.Now(), jitter)
		}
	}
	for q, r := range asked.results {
		if !r.failed() && !failed[q.Repository] {
			noteAnswer(a.Record, q.Repository, answerer(r.err, r.by), a.Now())
		}
	}
}

// maxRetryWait bounds how long a source is left alone: a host may ask for a day,
// and the spread behind that is one and a half more. A later time was heard when
// the clock was wrong.
const maxRetryWait = 3 * backoffMost

// retry is when a failed source is asked again.
func (s SourceRecord) retry(now time.Time) (time.Time, bool) {
	if s.Failures == 0 {
		return time.Time{}, false
	}
	if s.RetryAt.Sub(now) > maxRetryWait {
		return now, true
	}
	return s.RetryAt, true
}

// countFailures tells of the repositories that had no answer. A tag that is not
// there is one here: a pod may follow it.
func (a *Asker) countFailures(ctx context.Context, asked *Round) {
	if a.Meter == nil || ctx.Err() != nil {
		return
	}
	told := map[string]bool{}
	for _, q := range asked.questions() {
		err := asked.results[q].err
		if err == nil || told[q.Repository] {
			continue
		}
		told[q.Repository] = true
		host, cause := "", CauseOther
		if se, ok := errors.AsType[*SourceError](err); ok {
			host = se.Host
			if se.Cause != "" {
				cause = se.Cause
			}
		}
		a.Meter.Failed(host, cause)
	}
}

// err is the failure of a source as the record keeps it.
func (s SourceRecord) err(repository string) error {
	return &refusal{s.Error, &SourceError{
		Repository: repository, Host: s.Host, Mirror: s.Mirror, Status: s.HTTPStatus, Cause: s.Cause,
	}}
}
