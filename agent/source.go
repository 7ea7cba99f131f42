// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"time"
)

// noteAnswer keeps that a repository's source answered.
func (r *Record) noteAnswer(repository string, last Resolved, now time.Time) {
	r.source(repository, SourceRecord{
		Host: last.Host, Mirror: last.Mirror, Insecure: last.Insecure, LastSuccess: now,
	})
}

// noteFailure keeps that it did not, and what it said instead.
func (r *Record) noteFailure(repository string, err error) {
	s := r.Sources[repository]
	s.Failures++
	s.Error, s.RetryAt = err.Error(), time.Time{}
	if se, ok := errors.AsType[*SourceError](err); ok {
		s.Host, s.Mirror, s.RetryAt = se.Host, se.Mirror, se.RetryAt
	}
	r.source(repository, s)
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
