// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"math"
	"time"
)

// The first wait after a failure, what each further one multiplies it by, and
// where that ends. Five minutes is short for a registry that restarts. The
// factor makes it 5 minutes, 1 hour, and then the poll's own slot: at most two
// polls more in an interval of 12 h, so that a fleet which comes back from an
// outage asks at most three times as much as in peace (BenchmarkFleet). Doubling
// would be 7.5 times.
const (
	backoffFirst  = 5 * time.Minute
	backoffGrowth = 12
	BackoffMost   = 24 * time.Hour
)

// Backoff is how long a source is left alone after so many failures in a row,
// times a factor between a half and one and a half. jitter is from [0,1), another
// one for each node and round, so that a fleet which failed together does not
// come back together.
func Backoff(failures int, jitter float64) time.Duration {
	if failures < 1 {
		return 0
	}
	wait := float64(backoffFirst)
	for n := 1; n < failures && wait < float64(BackoffMost); n++ {
		wait *= backoffGrowth
	}
	return min(time.Duration(wait*(0.5+jitter)), BackoffMost)
}

// RetryTime is when a failed source is asked again: after the back-off, and
// never before the host wishes. All nodes may have been told one date
// (Retry-After): they come back as spread as they were told, each after half to
// one and a half of its own wait more.
func RetryTime(now, wish time.Time, failures int, jitter float64) time.Time {
	at := now.Add(Backoff(failures, jitter))
	told := wish.Sub(now)
	if told <= 0 { // there was no wish, or it is past
		return at
	}
	spread := float64(min(told, math.MaxInt64/2)) * (0.5 + jitter) // one and a half of it is a Duration still
	if again := wish.Add(time.Duration(spread)); again.After(at) {
		return again
	}
	return at
}

// NextPoll is the next moment at which a node asks anything: its slot, or, where
// sources failed, the earliest retry. With polling off (interval 0) there is
// neither, and the time is zero.
func NextPoll(now time.Time, interval time.Duration, machineID string, retries []time.Time) time.Time {
	return Earliest(NextSlot(now, interval, machineID), retries)
}

// Earliest is the slot or a retry before it. No retry is before no slot.
func Earliest(slot time.Time, retries []time.Time) time.Time {
	for _, r := range retries {
		if r.Before(slot) {
			slot = r
		}
	}
	return slot
}
