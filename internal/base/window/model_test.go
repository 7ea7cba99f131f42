// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// model returns for each minute from begin whether the schedule is open. It simulates a clock minute by minute: a
// window begins when the clock first shows its time or a later one.
func model(s Schedule, begin time.Time, minutes int) []bool {
	open := make([]bool, minutes)
	for _, w := range s {
		highest, until := shows(begin, w.Zone)-1, 0
		for i := range minutes {
			for shown := shows(begin.Add(time.Duration(i)*time.Minute), w.Zone); highest < shown; {
				highest++
				if highest%aDay == int(w.Start.Minutes()) && w.on(time.Weekday((highest/aDay+4)%7)) {
					until = i + int(w.Length.Minutes())
				}
			}
			open[i] = open[i] || i < until
		}
	}
	return open
}

const aDay = 24 * 60

// shows returns the clock's reading, in minutes since it showed 00:00 on 1 January 1970, a Thursday.
func shows(now time.Time, zone *time.Location) int {
	_, offset := now.In(zone).Zone()
	return (int(now.Unix()) + offset) / 60
}

var zones = []string{
	"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Casablanca",
	"America/Havana", "America/St_Johns", "Pacific/Apia", "Pacific/Chatham", "UTC",
}

func drawSchedule(t *rapid.T) Schedule {
	days := rapid.SliceOfNDistinct(rapid.IntRange(0, 6), 0, 7, rapid.ID)
	starts := rapid.OneOf(rapid.IntRange(0, 24*60-1), rapid.IntRange(0, 4*60))
	lengths := rapid.OneOf(rapid.IntRange(1, 6*60), rapid.IntRange(1, 7*24*60), rapid.Just(24*60), rapid.Just(60))
	windows := rapid.Custom(func(t *rapid.T) Window {
		w := Window{
			Start:  time.Duration(starts.Draw(t, "start")) * time.Minute,
			Length: time.Duration(lengths.Draw(t, "length")) * time.Minute,
			Zone:   zone(t, rapid.SampledFrom(zones).Draw(t, "zone")),
		}
		for _, day := range days.Draw(t, "days") {
			w.Days = append(w.Days, time.Weekday(day))
		}
		return w
	})
	return rapid.SliceOfN(windows, 1, 3).Draw(t, "schedule")
}

// drawMoment prefers the days around clock changes.
func drawMoment(t *rapid.T, s Schedule) time.Time {
	from := time.Date(2009, 1, 1, 0, 0, 0, 0, time.UTC)
	now := from.Add(time.Duration(rapid.IntRange(0, 30*365*24).Draw(t, "hours")) * time.Hour)
	near := rapid.IntRange(-3*24*60, 3*24*60).Draw(t, "minutes")
	if _, change := now.In(s[0].Zone).ZoneBounds(); !change.IsZero() {
		now = change.UTC().Truncate(time.Minute)
	}
	return now.Add(time.Duration(near) * time.Minute)
}

func TestOpenAgreesWithAClock(t *testing.T) {
	t.Parallel()
	const before, behind = 8 * aDay, 8 * aDay // minutes: a window may have begun a week ago
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchedule(t)
		now := drawMoment(t, s)
		want := model(s, now.Add(-before*time.Minute), before+behind)[before:]
		open, change := s.Open(now)
		require.Equal(t, want[0], open, now)
		changes := now.Add(behind * time.Minute) // or later
		for i, then := range want {
			if then != open {
				changes = now.Add(time.Duration(i) * time.Minute)
				break
			}
		}
		if change.IsZero() || change.Sub(now) >= behind*time.Minute {
			require.Equal(t, now.Add(behind*time.Minute), changes, "at %s the model changes and Open does not", now)
			return
		}
		require.Equal(t, changes, change, now)
	})
}

func TestTheStateChangesAtTheChange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchedule(t)
		now := drawMoment(t, s).Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "nanoseconds")))
		open, change := s.Open(now)
		if change.IsZero() {
			require.True(t, open, "what is closed opens within a week")
			return
		}
		require.True(t, change.After(now))
		between := now.Add(time.Duration(rapid.Int64Range(0, int64(change.Sub(now))-1).Draw(t, "between")))
		for _, same := range []time.Time{between, change.Add(-1)} {
			still, again := s.Open(same)
			require.Equal(t, open, still, fmt.Sprint(same))
			require.True(t, change.Equal(again), "%s: %s, before it was %s", same, again, change)
		}
		other, _ := s.Open(change)
		require.NotEqual(t, open, other)
	})
}
