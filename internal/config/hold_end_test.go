// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ends are values of --until on 20 November 2026, 12:00, and when each hold
// ends; "" is refused.
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

func TestHoldEnd(t *testing.T) {
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
