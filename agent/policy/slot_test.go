// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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

func TestNoIntervalMeansNoSlot(t *testing.T) {
	t.Parallel()
	assert.True(t, policy.NextSlot(time.Unix(0, 0), 0, "m").IsZero())
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
