// SPDX-License-Identifier: Apache-2.0

// Package window computes when maintenance windows are open, and parses times as people write them.
//
// A Window begins at a time of day, as clocks in its zone show it, on certain days of the week, and is open for a
// length of real time: on the night when clocks go forward, four hours from 01:00 end at 06:00. People and machines
// plan with the length, so clock changes do not affect it. A window may pass midnight; it belongs to the day on which
// it begins.
//
// A window whose start falls into a gap of the clocks begins right after the gap; one whose start occurs twice begins
// at the first occurrence.
//
// The package is pure, except for LoadZone, which reads the machine's zones. The agent does not embed them: that would
// add 400 KB, with rules as old as the binary.
package window

import (
	"iter"
	"slices"
	"time"
)

// Limits of a Window's length. A window of more than a week would never close.
const (
	Shortest = time.Minute
	Longest  = 7 * 24 * time.Hour
)

// Window is a weekly period.
type Window struct {
	// Days are the days on which it begins; empty: every day.
	Days []time.Weekday `yaml:"days,omitempty" is:"days"`
	// Start is the time of day at which it begins, from 0 to less than 24 hours, as clocks in Zone show it: 2h is
	// 02:00, even on a day of 23 hours.
	Start time.Duration `yaml:"start" is:"timeofday"`
	// Length is how long it is open, in real time, from Shortest to Longest.
	Length time.Duration `yaml:"length" is:"length"`
	// Zone is the time zone of its days and times.
	Zone *time.Location `yaml:"zone,omitempty" is:"zone" default:""`
}

// Schedule is open while one of its windows is. Without windows it is always open.
type Schedule []Window

// ahead is how far Open searches for the end of windows without a gap between them; it includes both clock changes of a
// year.
const ahead = 366 * 24 * time.Hour

// Open reports whether the schedule is open at now, and when that changes next; windows that
// overlap or touch count as one. The change is zero if none comes within a year: without
// windows, or if they leave no gap. A window includes its beginning, but not its end.
func (s Schedule) Open(now time.Time) (open bool, change time.Time) {
	if len(s) == 0 {
		return true, time.Time{}
	}
	end := s.reach(now)
	if !end.After(now) {
		return false, s.next(now)
	}
	for end.Sub(now) < ahead {
		further := s.reach(end)
		if !further.After(end) {
			return true, end
		}
		end = further
	}
	return true, time.Time{}
}

// reach returns the latest end of the windows that are open at t; t if none is.
func (s Schedule) reach(t time.Time) time.Time {
	last := t
	for _, w := range s {
		for begin := range w.begins(t, -week, 1) {
			if end := begin.Add(w.Length); !begin.After(t) && end.After(last) {
				last = end.In(t.Location())
			}
		}
	}
	return last
}

// next returns the first beginning after t.
func (s Schedule) next(t time.Time) time.Time {
	var soonest time.Time
	for _, w := range s {
		for begin := range w.begins(t, 0, week) {
			if begin.After(t) && (soonest.IsZero() || begin.Before(soonest)) {
				soonest = begin.In(t.Location())
			}
		}
	}
	return soonest
}

// week is the distance in days from t to the starts to consider. It is eight because clocks may go back over midnight
// (in St. John's, at 00:01): when it is Saturday again, Sunday's window has already begun, and the next one is in eight
// days.
const week = 7 + 1

// begins yields the window's starts in order, from day t+from to day t+to.
func (w Window) begins(t time.Time, from, to int) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		year, month, day := t.In(w.Zone).Date()
		for i := from; i <= to; i++ {
			midnight := time.Date(year, month, day+i, 0, 0, 0, 0, time.UTC)
			if w.on(midnight.Weekday()) && !yield(first(midnight.Add(w.Start), w.Zone)) {
				return
			}
		}
	}
}

func (w Window) on(day time.Weekday) bool {
	return len(w.Days) == 0 || slices.Contains(w.Days, day)
}

// farthest exceeds any zone's offset from UTC.
const farthest = 26 * time.Hour

// first returns the first instant at which clocks in the zone show what wall shows in UTC,
// or the end of the gap that skips it. time.Date promises neither.
func first(wall time.Time, zone *time.Location) time.Time {
	t := wall.Add(-farthest).In(zone)
	for {
		_, offset := t.Zone()
		at := wall.Add(-time.Duration(offset) * time.Second)
		begin, end := t.ZoneBounds() // zero if the offset has no start, or no end
		if !begin.IsZero() && at.Before(begin) {
			return begin
		}
		if end.IsZero() || at.Before(end) {
			return at.In(zone)
		}
		t = end
	}
}
