// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/policy"
)

func TestSlotsOfANode(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(rapid.Int64Range(-1<<36, 1<<38).Draw(t, "now"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
		interval := time.Duration(rapid.Int64Range(int64(time.Second), int64(30*24*time.Hour)).Draw(t, "interval"))
		id := rapid.String().Draw(t, "machine")
		slot := policy.NextSlot(now, interval, id)
		assert.True(t, slot.After(now), "it is ahead")
		assert.LessOrEqual(t, slot.Sub(now), interval, "by an interval at most")
		assert.Equal(t, slot.Add(interval), policy.NextSlot(slot, interval, id), "one follows the other")
		assert.Equal(t, slot, policy.NextSlot(slot.Add(-time.Nanosecond), interval, id), "whenever one asks")
	})
}

// An updated node keeps its slot.
func TestSlotsAreStable(t *testing.T) {
	t.Parallel()
	assert.True(t, policy.NextSlot(time.Unix(0, 0), 0, "m").IsZero(), "without an interval there is none")
	now := time.Date(2026, time.November, 22, 19, 0, 0, 0, time.UTC)
	assert.Equal(t, "2026-11-22T22:50:17.461943229Z", policy.NextSlot(now, 12*time.Hour, "machine").Format(time.RFC3339Nano))
	assert.Equal(t, "1969-12-31T22:50:17.461943229Z",
		policy.NextSlot(time.Unix(0, 0).Add(-3*time.Hour), 12*time.Hour, "machine").Format(time.RFC3339Nano))
	assert.Equal(t, "2300-01-01T10:50:17.461943229Z",
		policy.NextSlot(time.Date(2300, time.January, 1, 0, 0, 0, 0, time.UTC), 12*time.Hour, "machine").Format(time.RFC3339Nano))
}

func TestSlotsOfAFleetAreSpreadEvenly(t *testing.T) {
	t.Parallel()
	const nodes, buckets, interval = 10_000, 24, 12 * time.Hour
	now := time.Unix(1_780_000_000, 0)
	var count [buckets]int
	for n := range nodes {
		wait := policy.NextSlot(now, interval, fmt.Sprintf("machine-%d", n)).Sub(now)
		count[int64(wait-1)*buckets/int64(interval)]++
	}
	var chi float64
	const want = float64(nodes) / buckets
	for _, c := range count {
		chi += (float64(c) - want) * (float64(c) - want) / want
	}
	assert.Less(t, chi, 49.7, "chi square of 23 degrees at p = 0.001: %v", count)
}

func TestStageDelayDependsOnTheNode(t *testing.T) {
	t.Parallel()
	assert.Zero(t, policy.StageDelay(0, "m"))
	assert.Zero(t, policy.StageDelay(-time.Hour, "m"))
	assert.Equal(t, 2998772749561*time.Nanosecond, policy.StageDelay(time.Hour, "m"), "also after a restart")
	assert.NotEqual(t, policy.StageDelay(time.Hour, "m"), policy.StageDelay(time.Hour, "n"))
	epoch := time.Unix(0, 0)
	assert.NotEqual(t, policy.NextSlot(epoch, time.Hour, "m").Sub(epoch), policy.StageDelay(time.Hour, "m"),
		"the first to poll is not the first to pull")
	rapid.Check(t, func(t *rapid.T) {
		spread := time.Duration(rapid.Int64Range(1, int64(48*time.Hour)).Draw(t, "spread"))
		d := policy.StageDelay(spread, rapid.String().Draw(t, "machine"))
		assert.GreaterOrEqual(t, d, time.Duration(0))
		assert.Less(t, d, spread)
	})
}

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
