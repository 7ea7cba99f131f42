// SPDX-License-Identifier: Apache-2.0

package distspec

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A number in Retry-After of at least leastEpoch is not a wait, which would be 31 years, but the time itself, in
// seconds since 1970, as Docker Hub sends it. From leastMillis on it is in milliseconds: as seconds it would be after
// the year 5000.
const (
	leastEpoch  = 1e9
	leastMillis = 1e11
	mostMillis  = 1e14
)

// dateLayouts are date formats that servers send in addition to those of HTTP (RFC 9110, 5.6.7).
var dateLayouts = []string{
	"Mon, 2 Jan 2006 15:04:05 GMT", "Mon, 2 Jan 2006 15:04:05 UTC", time.RFC1123Z, time.RFC3339,
}

// RetryAfter parses the value of a Retry-After header (RFC 9110, 10.2.3): seconds, with or without a fraction, seconds
// or milliseconds since 1970, or a date. It returns at most now plus most, and zero for a time in the past or an
// invalid value.
func RetryAfter(value string, now time.Time, most time.Duration) time.Time {
	value = strings.TrimSpace(value)
	latest := now.Add(most)
	at, ok := retryTime(value, now, latest)
	switch {
	case !ok || at.Before(now):
		return time.Time{}
	case at.After(latest):
		return latest
	}
	return at
}

func retryTime(value string, now, latest time.Time) (time.Time, bool) {
	if value != "" && strings.Trim(value, "0123456789.") == "" {
		n, err := strconv.ParseFloat(value, 64)
		switch {
		case math.IsInf(n, 1), n >= mostMillis:
			return latest, true // larger than any sensible value
		case err != nil:
			return time.Time{}, false
		case n >= leastMillis:
			return time.UnixMilli(int64(math.Ceil(n))).UTC(), true
		case n >= leastEpoch:
			return time.Unix(int64(math.Ceil(n)), 0).UTC(), true
		case n > latest.Sub(now).Seconds():
			return latest, true
		}
		return now.Add(time.Duration(math.Ceil(n)) * time.Second), true
	}
	if at, err := http.ParseTime(value); err == nil {
		return at.UTC(), true
	}
	for _, layout := range dateLayouts {
		if at, err := time.Parse(layout, value); err == nil {
			return at.UTC(), true
		}
	}
	return time.Time{}, false
}
