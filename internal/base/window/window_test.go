// SPDX-License-Identifier: Apache-2.0

package window

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func zone(t require.TestingT, name string) *time.Location {
	found, err := LoadZone(name)
	require.NoError(t, err)
	return found
}

func at(t require.TestingT, text string) time.Time {
	found, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return found
}

// nights are windows on days with clock changes, and the expected times in UTC.
var nights = map[string]struct {
	zone, start string
	length      time.Duration
	after       string // start of the search
	begin, end  string
}{
	"Berlin, an evening":                     {"Europe/Berlin", "22:00", 4 * time.Hour, "2026-11-21T12:00:00Z", "2026-11-21T21:00:00Z", "2026-11-22T01:00:00Z"},
	"Berlin, forward over it":                {"Europe/Berlin", "01:00", 4 * time.Hour, "2026-03-28T12:00:00Z", "2026-03-29T00:00:00Z", "2026-03-29T04:00:00Z"},
	"Berlin, forward, the last before":       {"Europe/Berlin", "01:59", time.Hour, "2026-03-28T12:00:00Z", "2026-03-29T00:59:00Z", "2026-03-29T01:59:00Z"},
	"Berlin, forward, the first left out":    {"Europe/Berlin", "02:00", time.Hour, "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"},
	"Berlin, forward, left out":              {"Europe/Berlin", "02:30", time.Hour, "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"},
	"Berlin, forward, the first after":       {"Europe/Berlin", "03:00", time.Hour, "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"},
	"Berlin, back over it":                   {"Europe/Berlin", "01:00", 4 * time.Hour, "2026-10-24T12:00:00Z", "2026-10-24T23:00:00Z", "2026-10-25T03:00:00Z"},
	"Berlin, back, twice":                    {"Europe/Berlin", "02:30", time.Hour, "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"},
	"Berlin, back, the second is the next's": {"Europe/Berlin", "02:30", time.Hour, "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z", "2026-10-26T02:30:00Z"},
	"Berlin, back, the first after":          {"Europe/Berlin", "03:00", time.Hour, "2026-10-24T12:00:00Z", "2026-10-25T02:00:00Z", "2026-10-25T03:00:00Z"},
	"New York, forward, left out":            {"America/New_York", "02:30", time.Hour, "2026-03-07T12:00:00Z", "2026-03-08T07:00:00Z", "2026-03-08T08:00:00Z"},
	"New York, back, twice":                  {"America/New_York", "01:15", 2 * time.Hour, "2026-10-31T12:00:00Z", "2026-11-01T05:15:00Z", "2026-11-01T07:15:00Z"},
	"Lord Howe, forward, left out":           {"Australia/Lord_Howe", "02:15", time.Hour, "2026-10-03T12:00:00Z", "2026-10-03T15:30:00Z", "2026-10-03T16:30:00Z"},
	"Lord Howe, forward, after half an hour": {"Australia/Lord_Howe", "02:45", time.Hour, "2026-10-03T12:00:00Z", "2026-10-03T15:45:00Z", "2026-10-03T16:45:00Z"},
	"Lord Howe, back, before half an hour":   {"Australia/Lord_Howe", "01:15", time.Hour, "2026-04-04T12:00:00Z", "2026-04-04T14:15:00Z", "2026-04-04T15:15:00Z"},
	"Lord Howe, back, twice":                 {"Australia/Lord_Howe", "01:45", time.Hour, "2026-04-04T12:00:00Z", "2026-04-04T14:45:00Z", "2026-04-04T15:45:00Z"},
	"Kolkata has no such nights":             {"Asia/Kolkata", "02:30", time.Hour, "2026-03-28T12:00:00Z", "2026-03-28T21:00:00Z", "2026-03-28T22:00:00Z"},
	"Casablanca, back for Ramadan":           {"Africa/Casablanca", "02:30", time.Hour, "2026-02-14T12:00:00Z", "2026-02-15T01:30:00Z", "2026-02-15T02:30:00Z"},
	"Casablanca, forward after it":           {"Africa/Casablanca", "02:30", time.Hour, "2026-03-21T12:00:00Z", "2026-03-22T02:00:00Z", "2026-03-22T03:00:00Z"},
	"Havana, midnight left out":              {"America/Havana", "00:00", time.Hour, "2026-03-07T20:00:00Z", "2026-03-08T05:00:00Z", "2026-03-08T06:00:00Z"},
	"St. John's, midnight twice":             {"America/St_Johns", "00:00", 3 * time.Hour, "2010-11-06T20:00:00Z", "2010-11-07T02:30:00Z", "2010-11-07T05:30:00Z"},
	"Apia, 14 hours ahead":                   {"Pacific/Apia", "02:30", time.Hour, "2020-09-26T00:00:00Z", "2020-09-26T13:30:00Z", "2020-09-26T14:30:00Z"},
	"Apia, a day left out":                   {"Pacific/Apia", "12:00", time.Hour, "2011-12-30T08:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T11:00:00Z"},
}

func TestNightsWhenClocksChange(t *testing.T) {
	t.Parallel()
	for name, c := range nights {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start, err := ParseStart(c.start)
			require.NoError(t, err)
			s := Schedule{{Start: start, Length: c.length, Zone: zone(t, c.zone)}}
			now := at(t, c.after)
			if open, end := s.Open(now); open {
				now = end
			}
			open, begin := s.Open(now)
			assert.False(t, open)
			assert.Equal(t, at(t, c.begin), begin.UTC(), "begins")
			for _, within := range []time.Duration{0, c.length / 2, c.length - 1} {
				open, end := s.Open(begin.Add(within))
				assert.True(t, open, within)
				assert.Equal(t, at(t, c.end), end.UTC(), "ends")
			}
			open, _ = s.Open(begin.Add(c.length))
			assert.False(t, open, "closed at its end")
		})
	}
}

// 23:30 in St. John's, which occurs again after midnight: the window that began on the next date is still open.
func TestAWindowOfTomorrowIsOpenToday(t *testing.T) {
	t.Parallel()
	s := Schedule{{Length: 3 * time.Hour, Zone: zone(t, "America/St_Johns")}}
	now := at(t, "2010-11-07T03:00:00Z")
	require.Equal(t, "2010-11-06 23:30", now.In(s[0].Zone).Format("2006-01-02 15:04"))
	open, end := s.Open(now)
	assert.True(t, open)
	assert.Equal(t, at(t, "2010-11-07T05:30:00Z"), end.UTC())
}

// It is Saturday again, and Sunday's window has already begun: the next one is in eight days.
func TestSundaysWindowIsNotOpenTwice(t *testing.T) {
	t.Parallel()
	s := Schedule{{Days: []time.Weekday{time.Sunday}, Length: time.Minute, Zone: zone(t, "America/St_Johns")}}
	open, begin := s.Open(at(t, "2010-11-07T03:00:00Z"))
	assert.False(t, open)
	assert.Equal(t, at(t, "2010-11-14T03:30:00Z"), begin.UTC())
}

// weeks are schedules in UTC, and their state at a moment; 2026-11-21 is a Saturday.
var weeks = map[string]struct {
	schedule Schedule
	now      string
	open     bool
	change   string
}{
	"no windows":         {nil, "2026-11-21T12:00:00Z", true, ""},
	"before":             {Schedule{{[]time.Weekday{6}, 2 * time.Hour, 4 * time.Hour, time.UTC}}, "2026-11-21T01:59:59Z", false, "2026-11-21T02:00:00Z"},
	"at its beginning":   {Schedule{{[]time.Weekday{6}, 2 * time.Hour, 4 * time.Hour, time.UTC}}, "2026-11-21T02:00:00Z", true, "2026-11-21T06:00:00Z"},
	"at its end":         {Schedule{{[]time.Weekday{6}, 2 * time.Hour, 4 * time.Hour, time.UTC}}, "2026-11-21T06:00:00Z", false, "2026-11-28T02:00:00Z"},
	"past midnight":      {Schedule{{[]time.Weekday{5}, 22 * time.Hour, 4 * time.Hour, time.UTC}}, "2026-11-21T01:00:00Z", true, "2026-11-21T02:00:00Z"},
	"not on the day":     {Schedule{{[]time.Weekday{6}, 22 * time.Hour, 4 * time.Hour, time.UTC}}, "2026-11-21T01:00:00Z", false, "2026-11-21T22:00:00Z"},
	"two days":           {Schedule{{[]time.Weekday{0, 6}, 0, time.Hour, time.UTC}}, "2026-11-21T12:00:00Z", false, "2026-11-22T00:00:00Z"},
	"days that touch":    {Schedule{{[]time.Weekday{0, 6}, 0, 24 * time.Hour, time.UTC}}, "2026-11-21T12:00:00Z", true, "2026-11-23T00:00:00Z"},
	"windows that touch": {Schedule{{nil, 2 * time.Hour, time.Hour, time.UTC}, {nil, time.Hour, time.Hour, time.UTC}}, "2026-11-21T01:30:00Z", true, "2026-11-21T03:00:00Z"},
	"that overlap":       {Schedule{{nil, time.Hour, 2 * time.Hour, time.UTC}, {nil, 2 * time.Hour, 3 * time.Hour, time.UTC}}, "2026-11-21T01:30:00Z", true, "2026-11-21T05:00:00Z"},
	"one in another":     {Schedule{{nil, time.Hour, 4 * time.Hour, time.UTC}, {nil, 2 * time.Hour, time.Hour, time.UTC}}, "2026-11-21T02:30:00Z", true, "2026-11-21T05:00:00Z"},
	"all but a minute":   {Schedule{{[]time.Weekday{6}, time.Minute, Longest - time.Minute, time.UTC}}, "2026-11-21T00:00:30Z", false, "2026-11-21T00:01:00Z"},
	"in its last minute": {Schedule{{[]time.Weekday{6}, time.Minute, Longest - time.Minute, time.UTC}}, "2026-11-20T23:59:59Z", true, "2026-11-21T00:00:00Z"},
	"on its day again":   {Schedule{{[]time.Weekday{6}, 12 * time.Hour, Longest - time.Minute, time.UTC}}, "2026-11-21T11:00:00Z", true, "2026-11-21T11:59:00Z"},
	"a whole week":       {Schedule{{[]time.Weekday{6}, 0, Longest, time.UTC}}, "2026-11-21T12:00:00Z", true, ""},
	"the zero time":      {Schedule{{nil, time.Hour, time.Hour, time.UTC}}, "0001-01-01T00:00:00Z", false, "0001-01-01T01:00:00Z"},
	"ten thousand years": {Schedule{{nil, time.Hour, time.Hour, time.UTC}}, "9999-12-31T01:30:00Z", true, "9999-12-31T02:00:00Z"},
}

func TestWeeks(t *testing.T) {
	t.Parallel()
	for name, c := range weeks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open, change := c.schedule.Open(at(t, c.now))
			assert.Equal(t, c.open, open)
			want := time.Time{}
			if c.change != "" {
				want = at(t, c.change)
			}
			assert.Equal(t, want, change)
		})
	}
}

// Every day for 24 hours has a gap only on a day of 25 hours.
func TestADayOf25HoursHasAGap(t *testing.T) {
	t.Parallel()
	s := Schedule{{Length: 24 * time.Hour, Zone: zone(t, "Europe/Berlin")}}
	open, change := s.Open(at(t, "2026-01-01T12:00:00Z"))
	assert.True(t, open)
	assert.Equal(t, at(t, "2026-10-25T22:00:00Z"), change.UTC())
	open, change = s.Open(change)
	assert.False(t, open)
	assert.Equal(t, at(t, "2026-10-25T23:00:00Z"), change.UTC())
}

func TestTheChangeIsInTheZoneOfNow(t *testing.T) {
	t.Parallel()
	s := Schedule{{Length: time.Hour, Zone: zone(t, "Asia/Kolkata")}}
	for _, now := range []string{"2026-11-21T18:30:00Z", "2026-11-21T12:00:00Z"} {
		_, change := s.Open(at(t, now))
		assert.Equal(t, time.UTC, change.Location())
	}
}
