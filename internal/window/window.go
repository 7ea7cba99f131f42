// SPDX-License-Identifier: Apache-2.0

// Package window knows when maintenance windows are open.
//
// A Window begins at a time of day, as clocks in its zone show it, on certain
// days of the week, and is open for a length of real time: on the night when
// clocks go forward, four hours from 01:00 end at 06:00. The length is what
// people and machines plan for, so no night makes it shorter or longer. A window
// may pass midnight; it belongs to the day on which it begins.
//
// Clocks leave times out, and show others twice. A window whose beginning is left
// out begins at the first instant after the gap; one whose beginning is shown
// twice begins at the first, once.
//
// The room is pure, but for LoadZone, which reads the zones of the machine. They
// are not linked into the agent: that would be 400 KB, and rules that are as old
// as the binary where the system's are missing. A zone that is missing is told.
package window

import (
	"iter"
	"slices"
	"time"
)

// Bounds of a Window's length. Every window begins anew a week later, so a longer
// one would never close.
const (
	Shortest = time.Minute
	Longest  = 7 * 24 * time.Hour
)

// Window is a time that comes again each week.
type Window struct {
	// Days are those on which it begins; empty: every day.
	Days []time.Weekday `yaml:"days,omitempty" is:"days"`
	// Start is the time of day at which it begins, from 0 to less than 24 hours, as
	// clocks in Zone show it: 2h is 02:00, on a day of 23 hours, too.
	Start time.Duration `yaml:"start" is:"timeofday"`
	// Length is how long it is open, in real time, from Shortest to Longest.
	Length time.Duration `yaml:"length" is:"length"`
	// Zone is where its clocks and days are.
	Zone *time.Location `yaml:"zone,omitempty" is:"zone" default:""`
}

// Schedule is open while one of its windows is. One without windows always is.
type Schedule []Window

// ahead is how far Open looks for the end of windows that follow each other
// without a gap: both changes of the clocks are in it.
const ahead = 366 * 24 * time.Hour

// Open says whether the schedule is open at now, and when that changes: when it
// closes, windows that overlap or touch being one, or opens next. The change is
// after now, and zero where none comes within a year: without windows, or where
// they leave no gap. A window is open at the instant of its beginning, and closed
// at that of its end.
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

// reach is the latest end of the windows that are open at t; t where none is.
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

// next is the first beginning after t.
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

// week is how many days away from that of t a beginning may be that counts. Clocks
// that go back over midnight (St. John's did, at 00:01) make it eight: when it is
// Saturday again, Sunday's window has begun already, and the next is in eight days.
const week = 7 + 1

// begins are the window's beginnings in their order, on the days from so many after
// that of t to so many.
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

// farthest is more than any zone is away from UTC.
const farthest = 26 * time.Hour

// first is the instant at which clocks in the zone first show what wall shows in
// UTC, or the end of the gap in which they leave it out. time.Date promises
// neither.
func first(wall time.Time, zone *time.Location) time.Time {
	t := wall.Add(-farthest).In(zone)
	for {
		_, offset := t.Zone()
		at := wall.Add(-time.Duration(offset) * time.Second)
		begin, end := t.ZoneBounds() // zero where the offset has no beginning, or end
		if !begin.IsZero() && at.Before(begin) {
			return begin
		}
		if end.IsZero() || at.Before(end) {
			return at.In(zone)
		}
		t = end
	}
}
