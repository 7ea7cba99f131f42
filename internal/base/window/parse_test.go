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
