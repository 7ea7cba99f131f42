// SPDX-License-Identifier: Apache-2.0

package distspec

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const most = 24 * time.Hour
	none := time.Duration(-1)
	epoch := func(d time.Duration) string { return strconv.FormatInt(now.Add(d).Unix(), 10) }
	values := map[string]time.Duration{
		"": none, " ": none, "soon": none, "-1": none, "-60": none, "1.2.3": none, ".": none, "1e3": none, "0x10": none,
		"0": 0, "60": time.Minute, " 60 ": time.Minute, "060": time.Minute, "60.0": time.Minute, "0.2": time.Second, "1.5": 2 * time.Second,
		"86400": most, "86401": most, "999999999": most, strings.Repeat("9", 100): most, strings.Repeat("9", 400): most,
		// Docker Hub sends the time itself.
		epoch(time.Minute): time.Minute, epoch(time.Minute) + ".5": 61 * time.Second, epoch(0): 0,
		epoch(2 * most): most, epoch(-time.Minute): none, "1000000000": none,
		epoch(time.Minute) + "000":              time.Minute, // milliseconds
		"100000000000000":                       most,
		"Sun, 01 Mar 2026 12:30:00 GMT":         30 * time.Minute,
		"Sun, 1 Mar 2026 12:30:00 GMT":          30 * time.Minute,
		"Sun, 01 Mar 2026 12:30:00 UTC":         30 * time.Minute,
		"Sun, 01 Mar 2026 14:30:00 +0200":       30 * time.Minute,
		"Sunday, 01-Mar-26 12:30:00 GMT":        30 * time.Minute,
		"Sun Mar  1 12:30:00 2026":              30 * time.Minute,
		"2026-03-01T12:30:00Z":                  30 * time.Minute,
		"2026-03-01T14:30:00+02:00":             30 * time.Minute,
		"Fri, 31 Dec 9999 23:59:59 GMT":         most,
		"Sun, 01 Mar 2026 11:59:59 GMT":         none,
		"Thu, 01 Jan 1970 00:00:00 GMT":         none,
		"Sun, 01 Mar 2026 12:30:00 Mars/Crater": none,
	}
	for value, want := range values {
		at := time.Time{}
		if want != none {
			at = now.Add(want)
		}
		assert.Equal(t, at, RetryAfter(value, now, most), value)
	}
}
