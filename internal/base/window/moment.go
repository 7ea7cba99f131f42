// SPDX-License-Identifier: Apache-2.0

package window

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Moments are the forms of a time that flags accept.
const Moments = "2026-12-24, 2026-12-24T18:00:00+01:00, 12h or 7d"

const (
	day = 24 * time.Hour
	// longestSpan is ten years.
	longestSpan = 3660 * day
)

// ParseTime parses a time as people write it: RFC 3339, or only a date, which means midnight at its start in the
// zone of the machine. A time too late to be represented in UTC becomes the latest possible one.
func ParseTime(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t, err = time.ParseInLocation(time.DateOnly, text, time.Local)
	}
	if err != nil || t.Year() < 2000 { // before containers existed: a mistake; and the zero time means no end
		return time.Time{}, errors.New("want a time such as 2026-12-24T18:00:00+01:00, or a date such as 2026-12-24")
	}
	if writable := outside.Time(t); !writable.Equal(t) {
		return writable, nil
	}
	return t, nil
}

// ParseMoment parses a time as ParseTime, or relative to now: 72h, or 7d, which is the same time of that day.
func ParseMoment(text string, now time.Time) (time.Time, error) {
	if t, err := ParseTime(text); err == nil {
		return t.Round(time.Second), nil
	}
	d, err := ParseSpan(text)
	switch {
	case err != nil:
		return time.Time{}, fmt.Errorf("%q: want %s", text, Moments)
	case strings.HasSuffix(text, "d"):
		return now.AddDate(0, 0, int(d/day)).Round(time.Second), nil
	}
	return now.Add(d).Round(time.Second), nil
}

// ParseEnd parses a moment in the future. An empty text is the zero time: no end.
func ParseEnd(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	end, err := ParseMoment(text, now)
	if err == nil && !end.After(now) {
		err = fmt.Errorf("%q: is in the past", text)
	}
	return end, err
}

// ParseSpan parses a duration as Go writes it, or days: 48h, 30d. It is longer than 0, and at most ten years.
func ParseSpan(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if count, isDays := strings.CutSuffix(text, "d"); isDays {
		var days uint64
		days, err = strconv.ParseUint(count, 10, 16)
		d = time.Duration(days) * day
	}
	if err != nil || d <= 0 || d > longestSpan {
		return 0, fmt.Errorf("%q: want a duration such as 48h or 30d, of at most ten years", text)
	}
	return d, nil
}
