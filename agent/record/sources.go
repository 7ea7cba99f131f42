// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"time"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// maxRetryWait is the longest wait before a source is asked again: the maximum Retry-After of a day, and one and a half
// times that for the spread. A later time comes from a wrong clock.
const maxRetryWait = 3 * policy.MaxBackoff

// NextRetry returns when a failed source is asked again; false if it has not failed.
func (s SourceRecord) NextRetry(now time.Time) (time.Time, bool) {
	if s.Failures == 0 {
		return time.Time{}, false
	}
	if s.RetryAt.Sub(now) > maxRetryWait {
		return now, true
	}
	return s.RetryAt, true
}

// Err returns the last failure of a source.
func (s SourceRecord) Err(repository string) error {
	return &release.RecordedError{Text: s.Error, Cause: &release.SourceError{
		Repository: repository, Host: s.Host, Mirror: s.Mirror, Status: s.HTTPStatus, Cause: s.Cause,
	}}
}

// StaleSources returns the sources that do not answer, with the time of the first failure.
func StaleSources(sources Entries[SourceRecord]) []status.Reason {
	var out []status.Reason
	for name, s := range sources {
		if s.Failures > 0 && !s.Refused {
			never, last := "never answered", "last answer "
			if s.List {
				never, last = "newer tags are unknown", "newer tags known until "
			}
			since := never
			if !s.LastSuccess.IsZero() {
				since = last + s.LastSuccess.UTC().Format(time.RFC3339)
			}
			out = append(out, status.Reason{
				Kind: status.KindSource, Image: name, Host: s.Host, Cause: s.Cause, HTTPStatus: s.HTTPStatus,
				Since: s.LastSuccess, RetryAt: s.RetryAt, Text: fmt.Sprintf("%s (%d failures, %s)", s.Error, s.Failures, since),
			})
		}
	}
	return status.Sorted(out)
}

// NextRetry returns when a question is asked again because its rules have changed.
func (m Answer) NextRetry(now time.Time) (time.Time, bool) {
	if m.RetryAt.Sub(now) > policy.MaxBackoff {
		return now, true // recorded under a wrong clock
	}
	return m.RetryAt, !m.RetryAt.IsZero()
}
