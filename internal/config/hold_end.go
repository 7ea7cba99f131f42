// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxHoldDays bounds a hold that is counted in days: ten years.
const maxHoldDays = 3660

// ParseEnd reads when a hold ends: as ParseTime, or counted from now. Empty text is the zero time: it does not end.
func ParseEnd(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	end, err := ParseTime(text)
	if err != nil {
		end, err = fromNow(text, now)
	}
	switch {
	case err != nil:
		return time.Time{}, fmt.Errorf("%q: %w", text, err)
	case !end.After(now):
		return time.Time{}, fmt.Errorf("%q: has passed", text)
	}
	return end.Round(time.Second), nil
}

// fromNow reads a time as counted from now: 72h, or 7d, which ends at the same
// time of that day.
func fromNow(text string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n <= maxHoldDays {
			return now.AddDate(0, 0, n), nil
		}
	} else if d, err := time.ParseDuration(text); err == nil {
		return now.Add(d), nil
	}
	return time.Time{}, errors.New("want 2026-12-24, 2026-12-24T18:00:00+01:00, 12h or 7d")
}
