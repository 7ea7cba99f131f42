// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	values := map[string]time.Time{
		"":                                 {},
		"0":                                now,
		"120":                              now.Add(2 * time.Minute),
		" 1 ":                              now.Add(time.Second),
		"86400":                            now.Add(24 * time.Hour),
		"86401":                            now.Add(24 * time.Hour),
		strings.Repeat("9", 100):           now.Add(24 * time.Hour),
		"-1":                               {},
		"1.5":                              now.Add(2 * time.Second),
		"1772366460":                       now.Add(time.Minute), // since 1970: Docker Hub
		"soon":                             {},
		"Sun, 01 Mar 2026 12:30:00 GMT":    now.Add(30 * time.Minute),
		"Sunday, 01-Mar-26 12:30:00 GMT":   now.Add(30 * time.Minute),
		"Sun, 01 Mar 2026 11:59:59 GMT":    {},
		"Fri, 31 Dec 9999 23:59:59 GMT":    now.Add(24 * time.Hour),
		"Sun, 01 Mar 2026 12:30:00 +02:00": {},
	}
	for value, want := range values {
		assert.Equal(t, want, RetryAt(http.Header{"Retry-After": {value}}, now), value)
	}
}

// A host may block the agent for a day at most, and never sets a time in the past.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{
		"", "0", "86400", "86401", "-1", "1e3", " 5 ", "99999999999999999999", "Sun, 01 Mar 2026 12:30:00 GMT",
		"Sunday, 01-Mar-26 12:30:00 GMT", "Sun Mar  1 12:30:00 2026", "Fri, 31 Dec 9999 23:59:59 GMT", "Sun, 01 Mar 2026 12:30:00 +0200",
	} {
		f.Add(seed, int64(1772366400))
	}
	f.Fuzz(func(t *testing.T, value string, unix int64) {
		now := time.Unix(unix%(1<<33), 0).UTC()
		at := RetryAt(http.Header{"Retry-After": {value}}, now)
		if at.IsZero() {
			if n, err := strconv.ParseUint(value, 10, 64); err == nil && n < 1e9 {
				assert.Fail(t, "a number of seconds was not read", n)
			}
			return
		}
		assert.False(t, at.Before(now), "%s before %s", at, now)
		assert.False(t, at.After(now.Add(maxRetryAfter)))
		assert.Equal(t, time.UTC, at.Location())
		if n, err := strconv.ParseUint(value, 10, 64); err == nil && n <= uint64(maxRetryAfter/time.Second) {
			assert.Equal(t, now.Add(time.Duration(n)*time.Second), at)
		}
		if date, err := http.ParseTime(strings.TrimSpace(value)); err == nil && date.Before(now.Add(maxRetryAfter)) {
			assert.True(t, date.Equal(at))
		}
	})
}
