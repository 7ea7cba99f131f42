// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"time"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// maxRetryWait bounds how long a source is left alone: a host may ask for a day,
// and the spread behind that is one and a half more. A later time was heard when
// the clock was wrong.
const maxRetryWait = 3 * policy.BackoffMost

// AskAgainAt is when a failed source is asked again.
func (s SourceRecord) AskAgainAt(now time.Time) (time.Time, bool) {
	if s.Failures == 0 {
		return time.Time{}, false
	}
	if s.RetryAt.Sub(now) > maxRetryWait {
		return now, true
	}
	return s.RetryAt, true
}

// Err is the failure of a source as the record keeps it.
func (s SourceRecord) Err(repository string) error {
	return &release.Refusal{Text: s.Error, Cause: &release.SourceError{
		Repository: repository, Host: s.Host, Mirror: s.Mirror, Status: s.HTTPStatus, Cause: s.Cause,
	}}
}

// Drop removes the entries that JSON cannot write, and then the largest until the
// record has at most limit bytes: those first that a poll learns again.
func (r *Record) Drop(limit int) []status.Dropped {
	return status.DropFrom(r, "record", limit, []string{"Releases", "Lists", "Sources", "Offers"})
}

// NotUp is what became of a pod that did not come up.
func (r *Record) NotUp(file string) status.Kind {
	switch {
	case r.Overrides[file].Pending:
		return status.KindStep // it is to be rolled back still
	case r.Failed[file].Runs == "" && r.RolledBack(file) != nil:
		return status.KindRolledBack
	default:
		return status.KindNotUp
	}
}

// StaleSources are the sources that do not answer, and since when.
func (r *Record) StaleSources() []status.Reason {
	var out []status.Reason
	for name, s := range r.Sources {
		if s.Failures > 0 {
			since := "never answered"
			if !s.LastSuccess.IsZero() {
				since = "last answered " + s.LastSuccess.UTC().Format(time.RFC3339)
			}
			out = append(out, status.Reason{
				Kind: status.KindSource, Image: name, Host: s.Host, Cause: s.Cause, HTTPStatus: s.HTTPStatus,
				Since: s.LastSuccess, RetryAt: s.RetryAt, Text: fmt.Sprintf("%s (%d failures, %s)", s.Error, s.Failures, since),
			})
		}
	}
	return status.Sorted(out)
}

// AskAgainAt is when a question is put again because the rules have changed.
func (m Answer) AskAgainAt(now time.Time) (time.Time, bool) {
	if m.Again.Sub(now) > policy.BackoffMost {
		return now, true // kept under a wrong clock
	}
	return m.Again, !m.Again.IsZero()
}
