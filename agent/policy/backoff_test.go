// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/policy"
)

func TestEarliest(t *testing.T) {
	t.Parallel()
	slot := time.Date(2026, time.November, 25, 12, 0, 0, 0, time.UTC)
	hour := func(n int) time.Time { return slot.Add(time.Duration(n) * time.Hour) }
	for name, c := range map[string]struct {
		slot    time.Time
		retries []time.Time
		want    time.Time
	}{
		"without retries":      {slot, nil, slot},
		"a retry before":       {slot, []time.Time{hour(-1)}, hour(-1)},
		"a retry behind":       {slot, []time.Time{hour(1)}, slot},
		"the first of many":    {slot, []time.Time{hour(1), hour(-1), hour(-2)}, hour(-2)},
		"polling is off":       {time.Time{}, nil, time.Time{}},
		"off, and still waits": {time.Time{}, []time.Time{hour(-1)}, time.Time{}},
	} {
		assert.Equal(t, c.want, policy.Earliest(c.slot, c.retries), name)
	}
}

func TestBackoffIsFiveMinutesAnHourAndThenTheSlot(t *testing.T) {
	t.Parallel()
	for failures, want := range []time.Duration{0, 5 * time.Minute, time.Hour, 12 * time.Hour, 24 * time.Hour, 24 * time.Hour} {
		assert.Equal(t, want, policy.Backoff(failures, 0.5))
	}
}

func TestPropertyBackoff(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		failures := rapid.IntRange(-3, 10_000).Draw(t, "failures")
		jitter := rapid.Float64Range(0, 0.999999).Draw(t, "jitter")
		now := time.Unix(rapid.Int64Range(0, 1<<38).Draw(t, "now"), 0)
		wish := now.Add(time.Duration(rapid.Int64Range(-1<<62, 1<<62).Draw(t, "wish")))
		at := policy.RetryTime(now, wish, failures, jitter)
		require.False(t, at.Before(wish), "before the host's wish")
		require.False(t, at.Before(now))
		if failures > 0 {
			require.GreaterOrEqual(t, policy.Backoff(failures, jitter), 150*time.Second)
			require.GreaterOrEqual(t, policy.Backoff(failures+1, jitter), policy.Backoff(failures, jitter), "it doubles")
		}
		require.LessOrEqual(t, policy.Backoff(failures, jitter), 24*time.Hour)
	})
}
