// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// noteAnswer keeps that a repository's source answered.
func noteAnswer(r *record.Record, repository string, last release.Resolved, now time.Time) {
	r.Sources.Set(repository, record.SourceRecord{
		Host: last.Host, Mirror: last.Mirror, Insecure: last.Insecure, LastSuccess: now,
	})
}

// noteFailure keeps that it did not, what it said instead, and when it is asked
// again. A source that was not even asked has not failed once more.
func noteFailure(r *record.Record, repository string, err error, now time.Time, jitter float64) {
	s := r.Sources[repository]
	se, ok := errors.AsType[*release.SourceError](err)
	if !ok {
		se = &release.SourceError{Err: err}
	}
	if !se.Unasked || s.Failures == 0 {
		s.Failures++
	}
	s.Error, s.Reason = err.Error(), se.Answer()
	s.Cause, s.HTTPStatus = cmp.Or(se.Cause, release.CauseOther), se.Status
	if se.Host != "" {
		s.Host, s.Mirror = se.Host, se.Mirror
	}
	s.RetryAt = policy.RetryTime(now, se.RetryAt, s.Failures, jitter)
	r.Sources.Set(repository, s)
}

// answerer is the host that gave an answer which is an error.
func answerer(err error, last release.Resolved) release.Resolved {
	if se, ok := errors.AsType[*release.SourceError](err); ok {
		return release.Resolved{Host: se.Host, Mirror: se.Mirror}
	}
	return last
}

// leastFailedFirst is the order of asking. Who has failed often may make its
// host be left alone for a while; the others must have had their turn by then.
func (a *Asker) leastFailedFirst(qs []release.Question) []release.Question {
	out := slices.Clone(qs)
	slices.SortStableFunc(out, func(x, y release.Question) int {
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
		host, cause := "", release.CauseOther
		if se, ok := errors.AsType[*release.SourceError](err); ok {
			host = se.Host
			if se.Cause != "" {
				cause = se.Cause
			}
		}
		a.Meter.Failed(host, cause)
	}
}
