// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
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

// random returns the same generator at each run, unless IUA_SEED is set.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed, _ := strconv.ParseUint(os.Getenv("IUA_SEED"), 10, 64)
	t.Logf("IUA_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// analyze runs systemd-analyze on texts and returns its line for each that a pattern matches; empty if it rejects the
// text. It stops at the first rejected text.
func analyze(t *testing.T, line *regexp.Regexp, texts []string, args ...string) (says []string) {
	t.Helper()
	for len(says) < len(texts) {
		cmd := exec.CommandContext(t.Context(), "systemd-analyze", append(append(args, "--"), texts[len(says):]...)...)
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TZ=UTC")
		out, err := cmd.Output()
		for _, m := range line.FindAllStringSubmatch(string(out), -1) {
			says = append(says, m[1])
		}
		if err == nil {
			break
		}
		says = append(says, "")
	}
	require.Len(t, says, len(texts))
	return says
}

var nextElapse = regexp.MustCompile(`(?m)^    Next elapse: \w+ (.*) UTC$`)

// A window begins when a systemd timer with its days, time and zone elapses, also around clock changes. They differ on
// purpose if the clock skips that time: the window begins after the gap, and the timer waits for the next day.
func TestWindowsMatchSystemdTimers(t *testing.T) {
	t.Parallel()
	r := random(t)
	compared, skipped := 0, 0
	for range 60 {
		zone, err := LoadZone(zones[r.IntN(len(zones))])
		require.NoError(t, err)
		now := time.Date(2009, 1, 1+r.IntN(30*365), r.IntN(24), r.IntN(60), 0, 0, time.UTC)
		if _, change := now.In(zone).ZoneBounds(); !change.IsZero() && r.IntN(3) > 0 {
			now = change.UTC().Add(time.Duration(r.IntN(4*24*60)-3*24*60) * time.Minute)
		}
		var windows []Window
		var texts []string
		for range 20 {
			from, to := time.Weekday(r.IntN(7)), time.Weekday(r.IntN(7))
			start := fmt.Sprintf("%02d:%02d", r.IntN(1+r.IntN(24)), r.IntN(60))
			days, err := ParseDays(from.String() + "-" + to.String()[:3])
			require.NoError(t, err)
			var names []string
			for _, day := range days {
				names = append(names, day.String()[:3])
			}
			w := Window{Days: days, Zone: zone, Length: time.Minute}
			w.Start, err = ParseStart(start)
			require.NoError(t, err)
			windows, texts = append(windows, w), append(texts, strings.Join(names, ",")+" "+start+" "+zone.String())
		}
		for i, next := range analyze(t, nextElapse, texts, "calendar", "--base-time="+now.Format("2006-01-02 15:04:05 UTC")) {
			want, err := time.Parse("2006-01-02 15:04:05", next)
			require.NoError(t, err, "%s: %s", texts[i], next)
			got := Schedule{windows[i]}.next(now)
			if shown := got.In(zone); shown.Hour()*60+shown.Minute() != int(windows[i].Start.Minutes()) {
				skipped++
				continue
			}
			compared++
			assert.Equal(t, want.Format(time.RFC3339), got.UTC().Format(time.RFC3339), "%s after %s", texts[i], now)
		}
	}
	t.Logf("%d compared, %d in a gap", compared, skipped)
	assert.Greater(t, compared, 1000)
}

var microseconds = regexp.MustCompile(`(?m)^ +μs: (\d+)$`)

// A length that systemd also accepts has the same duration.
func TestLengthsMatchSystemdTimeSpans(t *testing.T) {
	t.Parallel()
	r := random(t)
	compared := 0
	numbers := []string{"1", "30", "4", "0", "007", "1.5", ".5", "90", "0.25", "1.000001", "12", "3"}
	units := []string{"h", "h", "m", "m", "s", "s", "ms", "us", "d", "w", "min", "hr", " h", "h ", "", "M"}
	for range 30 {
		var texts []string
		for range 60 {
			text := ""
			for range 1 + r.IntN(3) {
				text += numbers[r.IntN(len(numbers))] + units[r.IntN(6+r.IntN(len(units)-5))]
			}
			texts = append(texts, text)
		}
		for i, us := range analyze(t, microseconds, texts, "timespan") {
			got, err := ParseLength(texts[i])
			want, number := strconv.ParseInt(us, 10, 64)
			if err != nil || us == "" {
				continue // a text that one of them rejects cannot be misread
			}
			require.NoError(t, number)
			compared++
			assert.InDelta(t, want, got.Microseconds(), 1000, texts[i]) // systemd rounds each part of a fraction
		}
	}
	t.Logf("%d compared", compared)
	assert.Greater(t, compared, 500)
}
