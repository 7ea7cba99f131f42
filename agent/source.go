// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"time"
)

// noteAnswer keeps that a repository's source answered.
func (r *Record) noteAnswer(repository string, last Resolved, now time.Time) {
	r.source(repository, SourceRecord{
		Host: last.Host, Mirror: last.Mirror, Insecure: last.Insecure, LastSuccess: now,
	})
}

// noteFailure keeps that it did not, what it said instead, and when it is asked
// again. A source that was not even asked has not failed once more.
func (r *Record) noteFailure(repository string, err error, now time.Time, jitter float64) {
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
	r.source(repository, s)
}

// err is the failure of a source as the record keeps it.
func (s SourceRecord) err(repository string) error {
	return &refusal{s.Error, &SourceError{
		Repository: repository, Host: s.Host, Mirror: s.Mirror, Status: s.HTTPStatus, Cause: s.Cause,
	}}
}

func (r *Record) source(repository string, s SourceRecord) {
	if r.Sources == nil {
		r.Sources = map[string]SourceRecord{}
	}
	r.Sources[repository] = s
}

// answerer is the host that gave an answer which is an error.
func answerer(err error, last Resolved) Resolved {
	if se, ok := errors.AsType[*SourceError](err); ok {
		return Resolved{Host: se.Host, Mirror: se.Mirror}
	}
	return last
}
