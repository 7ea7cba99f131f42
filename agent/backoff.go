// SPDX-License-Identifier: Apache-2.0

package agent

import "time"

// The first wait after a failure, and what doubling ends at. Five minutes is
// short for a registry that restarts; a day is the longest a node says nothing
// about one that is back, and in practice the poll's own slot comes first.
const (
	backoffFirst = 5 * time.Minute
	backoffMost  = 24 * time.Hour
)

// Backoff is how long a source is left alone after so many failures in a row:
// it doubles, times a factor between a half and one and a half. jitter is from
// [0,1), another one for each node and failure, so that a fleet which failed
// together does not come back together.
func Backoff(failures int, jitter float64) time.Duration {
	if failures < 1 {
		return 0
	}
	wait := backoffFirst << min(failures-1, 10)
	wait = time.Duration(float64(wait) * (0.5 + jitter))
	return min(wait, backoffMost)
}

// RetryTime is when a failed source is asked again: after the back-off, and
// never before the host wishes. What all nodes were told in one answer (a date
// in Retry-After) they must not all obey at one second, so the wish is where the
// wait begins.
func RetryTime(now, wish time.Time, failures int, jitter float64) time.Time {
	wait := Backoff(failures, jitter)
	if wish.After(now) {
		return wish.Add(time.Duration(jitter * float64(wait)))
	}
	return now.Add(wait)
}

// NextPoll is the next moment at which a node asks anything: its slot, or, where
// sources failed, the earliest retry. With polling off (interval 0) there is
// neither, and the time is zero.
func NextPoll(now time.Time, interval time.Duration, machineID string, retries []time.Time) time.Time {
	return earliest(NextSlot(now, interval, machineID), retries)
}

func earliest(slot time.Time, retries []time.Time) time.Time {
	if slot.IsZero() {
		return slot
	}
	for _, r := range retries {
		if r.Before(slot) {
			slot = r
		}
	}
	return slot
}
