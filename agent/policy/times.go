// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"time"
)

// NextSlot returns the first time after now at which this node polls. Its place in the interval is derived from the
// machine id, so that the nodes of a fleet spread evenly, even after all of them restart. It is zero if polling is off
// (interval 0).
func NextSlot(now time.Time, interval time.Duration, machineID string) time.Time {
	if interval <= 0 {
		return time.Time{}
	}
	// Truncate counts intervals from the year 1; those of slots begin in 1970.
	part := func(t time.Time) time.Duration { return t.Sub(t.Truncate(interval)) }
	passed := (part(now) - part(time.Unix(0, 0)) - place("poll slot", interval, machineID) + 2*interval) % interval
	return now.Round(0).UTC().Add(interval - passed)
}

// StageDelay returns how long a node waits between a poll and its pulls, from 0 to spread.
func StageDelay(spread time.Duration, machineID string) time.Duration {
	if spread <= 0 {
		return 0
	}
	return place("stage delay", spread, machineID)
}

// place returns a node's place in a span. It differs by purpose, so that the first node to
// poll is not the first to pull.
func place(purpose string, span time.Duration, machineID string) time.Duration {
	sum := sha256.Sum256([]byte("image-update-agent " + purpose + " " + machineID))
	return time.Duration(binary.BigEndian.Uint64(sum[:8]) % uint64(span))
}

// Earlier returns the earlier of two times.
func Earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// The waits are 5 minutes, 1 hour, and then the poll's slot: at most two polls more in an
// interval of 12 h, so that a fleet sends at most three times its usual requests after an
// outage (e2e/fleet: TestPeaks). Doubling would send 7.5 times as many.
const (
	backoffFirst  = 5 * time.Minute
	backoffGrowth = 12
	MaxBackoff    = 24 * time.Hour
)

// Backoff returns the wait after a number of consecutive failures, times a factor from 0.5 to 1.5. jitter is from
// [0,1), different for each node and round, so that the nodes of a fleet do not retry at once.
func Backoff(failures int, jitter float64) time.Duration {
	if failures < 1 {
		return 0
	}
	wait := float64(backoffFirst)
	for n := 1; n < failures && wait < float64(MaxBackoff); n++ {
		wait *= backoffGrowth
	}
	return min(time.Duration(wait*(0.5+jitter)), MaxBackoff)
}

// RetryTime returns when a failed source is asked again: after the back-off, and after retryAfter, the host's
// Retry-After (zero: none), plus 0.5 to 1.5 times that wait, because a host may send the same date to all nodes.
func RetryTime(now, retryAfter time.Time, failures int, jitter float64) time.Time {
	at := now.Add(Backoff(failures, jitter))
	wait := retryAfter.Sub(now)
	if wait <= 0 {
		return at
	}
	spread := float64(min(wait, math.MaxInt64/2)) * (0.5 + jitter) // fits a Duration
	if again := retryAfter.Add(time.Duration(spread)); again.After(at) {
		return again
	}
	return at
}

// Earliest returns the slot or the earliest retry before it; without a slot, zero.
func Earliest(slot time.Time, retries []time.Time) time.Time {
	for _, r := range retries {
		slot = Earlier(slot, r)
	}
	return slot
}
