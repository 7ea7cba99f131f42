// SPDX-License-Identifier: Apache-2.0

package window

import (
	"errors"
	"slices"
	"strings"
	"time"
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

// ParseStart parses a time of day, "02:00", as the duration since 00:00. It has two digits each, from 00:00 to 23:59.
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
