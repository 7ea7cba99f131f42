// SPDX-License-Identifier: Apache-2.0

package window

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

var errDays = errors.New("want a day such as sat or Saturday, or days such as mon-fri")

// ParseDays parses a day of the week, or a range of days: "sat", "Saturday", "mon-fri", "fri-mon". Names are English,
// in full or their first three letters, in any case. The days are in the order written, at most seven.
func ParseDays(text string) ([]time.Weekday, error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	day, known := weekday(from)
	last, lastKnown := weekday(to)
	if !known || !lastKnown {
		return nil, errDays
	}
	days := []time.Weekday{day}
	for day != last {
		day = (day + 1) % 7
		days = append(days, day)
	}
	return days, nil
}

// DayNames returns the names that ParseDays accepts, in lower case.
func DayNames() []string {
	var names []string
	for day := time.Sunday; day <= time.Saturday; day++ {
		name := strings.ToLower(day.String())
		names = append(names, name[:3], name)
	}
	return names
}

func weekday(name string) (time.Weekday, bool) {
	at := slices.Index(DayNames(), strings.ToLower(name))
	return time.Weekday(at / 2), at >= 0
}

// clock is the layout of a time of day.
const clock = "15:04"

// ParseStart parses a time of day, "02:00", as the time since 00:00. Hours (up to 23) and minutes have two digits.
func ParseStart(text string) (time.Duration, error) {
	t, err := time.Parse(clock, text)
	if err != nil || t.Format(clock) != text { // 2:00 could mean 14:00
		return 0, errors.New("want a time of day such as 02:00, from 00:00 to 23:59")
	}
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute, nil
}

// ParseLength parses the length of a window: "4h", "1h30m".
func ParseLength(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < Shortest || d > Longest {
		return 0, errors.New("want a duration such as 4h or 1h30m, from 1m to 168h")
	}
	return d, nil
}

var errZone = errors.New("unknown time zone, want a name such as Europe/Berlin (see timedatectl list-timezones), " +
	"or nothing for that of the machine")

// LoadZone returns a time zone by its name in the IANA database, "Europe/Berlin", from the machine's
// /usr/share/zoneinfo. An empty name is the machine's zone at the start of the process.
func LoadZone(name string) (*time.Location, error) {
	if name == "" {
		return time.Local, nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" { // one spelling is enough
		return nil, errZone
	}
	return zone, nil
}

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
