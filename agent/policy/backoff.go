// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"math"
	"time"
)

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
		if r.Before(slot) {
			slot = r
		}
	}
	return slot
}
