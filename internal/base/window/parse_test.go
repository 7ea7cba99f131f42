// SPDX-License-Identifier: Apache-2.0

package window

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// days maps texts to their result; nil: rejected.
var days = map[string][]time.Weekday{
	"sat":             {time.Saturday},
	"Saturday":        {time.Saturday},
	"SUN":             {time.Sunday},
	"mon-fri":         {time.Monday, time.Tuesday, time.Wednesday, time.Thursday, time.Friday},
	"Fri-monday":      {time.Friday, time.Saturday, time.Sunday, time.Monday},
	"tue-mon":         {time.Tuesday, time.Wednesday, time.Thursday, time.Friday, time.Saturday, time.Sunday, time.Monday},
	"wed-wed":         {time.Wednesday},
	"":                nil,
	"-":               nil,
	"mon-":            nil,
	"-fri":            nil,
	"mon-tue-wed":     nil,
	"mon - fri":       nil,
	"sa":              nil,
	"satur":           nil,
	"workdays":        nil,
	"6":               nil,
	"\u017fat":        nil, // a long s, which is an s in another case
	"mon,tue":         nil,
	"thursday-friday": {time.Thursday, time.Friday},
}

func TestParseDays(t *testing.T) {
	t.Parallel()
	for text, want := range days {
		got, err := ParseDays(text)
		assert.Equal(t, want, got, text)
		assert.Equal(t, want == nil, err != nil, text)
	}
	for i, name := range DayNames() {
		got, err := ParseDays(name)
		require.NoError(t, err)
		assert.Equal(t, []time.Weekday{time.Weekday(i / 2)}, got)
	}
}

// starts maps texts to minutes since midnight; -1: rejected.
var starts = map[string]int{
	"00:00": 0, "02:00": 120, "23:59": 1439, "12:30": 750,
	"": -1, "24:00": -1, "2:00": -1, "02:0": -1, "02": -1, "02:60": -1, "02:00:00": -1, "-02:00": -1, "02.00": -1, "2am": -1, " 02:00": -1,
}

func TestParseStart(t *testing.T) {
	t.Parallel()
	for text, want := range starts {
		got, err := ParseStart(text)
		assert.Equal(t, want == -1, err != nil, text)
		assert.Equal(t, time.Duration(max(want, 0))*time.Minute, got, text)
	}
}

// lengths maps texts to their result; 0: rejected.
var lengths = map[string]time.Duration{
	"4h": 4 * time.Hour, "1h30m": 90 * time.Minute, "1m": Shortest, "60s": Shortest, "168h": Longest,
	"": 0, "59s": 0, "168h1s": 0, "0": 0, "-4h": 0, "4": 0, "1d": 0, "forever": 0, "9999999999h": 0,
}

func TestParseLength(t *testing.T) {
	t.Parallel()
	for text, want := range lengths {
		got, err := ParseLength(text)
		assert.Equal(t, want, got, text)
		assert.Equal(t, want == 0, err != nil, text)
	}
}

func TestLoadZone(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "Europe/Berlin", zone(t, "Europe/Berlin").String())
	assert.Same(t, time.Local, zone(t, ""))
	assert.Same(t, time.UTC, zone(t, "UTC"))
	for _, name := range []string{"Local", "Berlin", "Europe", "CEST", "+01:00", "../etc/localtime", "/etc/localtime", "Europe/Berlin\x00", strings.Repeat("x", 5000)} {
		_, err := LoadZone(name)
		require.ErrorContains(t, err, "unknown time zone, want a name such as Europe/Berlin", name)
	}
}

func FuzzParse(f *testing.F) {
	for _, texts := range [][]string{{"sat", "02:00", "4h", "Europe/Berlin"}, {"mon-fri", "23:59", "168h", ""}, {"Sun-x", "24:00", "59s", "../x"}} {
		f.Add(texts[0], texts[1], texts[2], texts[3])
	}
	f.Fuzz(func(t *testing.T, daysText, startText, lengthText, zoneText string) {
		w := Window{Zone: time.UTC, Length: Shortest}
		if found, err := ParseDays(daysText); err == nil {
			require.NotEmpty(t, found)
			require.LessOrEqual(t, len(found), 7)
			again, err := ParseDays(found[0].String() + "-" + found[len(found)-1].String())
			require.NoError(t, err)
			require.Equal(t, found, again)
			w.Days = found
		}
		if found, err := ParseStart(startText); err == nil {
			require.Equal(t, startText, time.Time{}.Add(found).Format(clock))
			w.Start = found
		}
		if found, err := ParseLength(lengthText); err == nil {
			require.True(t, found >= Shortest && found <= Longest)
			w.Length = found
		}
		if found, err := LoadZone(zoneText); err == nil {
			require.NotNil(t, found)
			w.Zone = found
		}
		now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
		open, change := Schedule{w}.Open(now)
		require.True(t, open && change.IsZero() || change.After(now))
	})
}

// ends maps values of --until on 20 November 2026, 12:00, to the end of the hold; "" is rejected.
var ends = map[string]string{
	"":                          "0001-01-01T00:00:00Z",
	"72h":                       "2026-11-23T12:00:00Z",
	"1h30m":                     "2026-11-20T13:30:00Z",
	"7d":                        "2026-11-27T12:00:00Z",
	"3660d":                     "2036-11-27T12:00:00Z",
	"2026-11-20T13:00:00+01:00": "",
	"2026-11-20T13:00:01+01:00": "2026-11-20T12:00:01Z",
	"2026-11-19":                "",
	"0":                         "",
	"0d":                        "",
	"-1d":                       "",
	"3661d":                     "",
	"87840h":                    "2036-11-27T12:00:00Z",
	"87841h":                    "",
	"99999999999999999999d":     "",
	"d":                         "",
	"1w":                        "",
	"7":                         "",
	"next week":                 "",
}

func TestParseEnd(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)
	for text, want := range ends {
		got, err := ParseEnd(text, now)
		if want == "" {
			assert.Error(t, err, text)
			continue
		}
		require.NoError(t, err, text)
		assert.Equal(t, want, got.UTC().Format(time.RFC3339), text)
	}
	tomorrow := now.Local().AddDate(0, 0, 1).Format(time.DateOnly)
	got, err := ParseEnd(tomorrow, now)
	require.NoError(t, err)
	midnight, err := ParseTime(tomorrow)
	require.NoError(t, err)
	assert.Equal(t, midnight, got, "a date is its midnight here, as in the configuration")
}

// times are moments as people write them, and their meaning; nil: rejected.
var times = map[string]*time.Time{
	"2026-12-24":                new(time.Date(2026, time.December, 24, 0, 0, 0, 0, time.Local)),
	"2026-12-24T18:00:00+01:00": new(time.Date(2026, time.December, 24, 17, 0, 0, 0, time.UTC)),
	"2026-12-24T17:00:00Z":      new(time.Date(2026, time.December, 24, 17, 0, 0, 0, time.UTC)),
	"2000-01-01T00:00:00Z":      new(time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)),
	"1999-12-31T23:59:59Z":      nil,
	"0001-01-01T00:00:00Z":      nil,
	"2026-02-30":                nil,
	"2026-12-24 17:00:00":       nil,
	"2026-12-24T17:00:00":       nil,
	"24.12.2026":                nil,
	"72h":                       nil,
	"":                          nil,
}

func TestParseTime(t *testing.T) {
	t.Parallel()
	for text, want := range times {
		got, err := ParseTime(text)
		if want == nil {
			assert.ErrorContains(t, err, "want a time such as", text)
			assert.Zero(t, got)
			continue
		}
		require.NoError(t, err, text)
		assert.True(t, want.Equal(got), "%s is %s, want %s", text, got, want)
	}
}

// A hold's end and a freeze are written to the status, where years have four digits in UTC.
func TestTimeOfThePolicyCanBeWritten(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"9999-12-31T23:59:59-12:00", "9999-12-31", "2026-12-24"} {
		got, err := ParseTime(text)
		require.NoError(t, err, text)
		for _, hours := range []int{-14, 0, 14} {
			_, err = got.In(time.FixedZone("", hours*3600)).MarshalJSON()
			assert.NoError(t, err, "%s at %+d", text, hours)
		}
	}
}

// The beginning of a rollout may be in the past.
func TestParseMoment(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)
	got, err := ParseMoment("2026-11-19T12:00:00Z", now)
	require.NoError(t, err)
	assert.Equal(t, now.AddDate(0, 0, -1), got)
	_, err = ParseMoment("tomorrow", now)
	require.EqualError(t, err, `"tomorrow": want `+Moments)
}
