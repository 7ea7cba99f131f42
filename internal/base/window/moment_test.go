// SPDX-License-Identifier: Apache-2.0

package window

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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

func TestParseSpan(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"48h": 48 * time.Hour, "30d": 30 * day, "3660d": 3660 * day, "87840h": 3660 * day,
		"3661d": 0, "87841h": 0, "0": 0, "-1h": 0, "d": 0, "99999d": 0, "2026-12-24": 0,
	} {
		got, err := ParseSpan(text)
		assert.Equal(t, want, got, text)
		assert.Equal(t, want == 0, err != nil, text)
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
