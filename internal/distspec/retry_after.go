// SPDX-License-Identifier: Apache-2.0

package distspec

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A number in Retry-After that is at least leastEpoch is no wait, which would be 31 years: it is
// the time itself, in seconds since 1970, as Docker Hub sends it. From leastMillis on it is in
// milliseconds: as seconds it would be a year after 5000.
const (
	leastEpoch  = 1e9
	leastMillis = 1e11
	mostMillis  = 1e14
)

// dateLayouts are the forms of a date beside those of HTTP (RFC 9110, 5.6.7) that servers send.
var dateLayouts = []string{
	"Mon, 2 Jan 2006 15:04:05 GMT", "Mon, 2 Jan 2006 15:04:05 UTC", time.RFC1123Z, time.RFC3339,
}

// RetryAfter reads the value of a Retry-After header (RFC 9110, 10.2.3): seconds, with a fraction
// or without, seconds or milliseconds since 1970, or a date. A time later than most is most. It is
// zero for a time in the past, and for what cannot be read.
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
			return latest, true // more than anybody means
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
