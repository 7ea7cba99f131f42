// SPDX-License-Identifier: Apache-2.0

package policy

import "time"

// The pods that a lock of the fleet covers.
const (
	LockControlPlane = "control-plane" // etcd and kube-apiserver
	LockAll          = "all"
)

// Lock is the lock of the fleet, under which pods are restarted; the zero value: there is none.
type Lock struct {
	Pods   string // LockControlPlane or LockAll
	Server string // URL of the lock server
	Group  string
	ID     string // of this node towards the server
}

// Covers reports whether a pod is restarted under the lock.
func (l Lock) Covers(isControlPlane bool) bool {
	return l.Pods == LockAll || l.Pods == LockControlPlane && isControlPlane
}

// The waits for a lock. A holder restarts its pods within minutes.
const (
	lockRetry    = time.Minute      // after a refusal
	maxLockRetry = 15 * time.Minute // after failures in a row
)

// LockRetry returns when a lock server is asked again: a minute after a refusal, up to 15 minutes after failures
// without an answer, each times a factor from 0.5 to 1.5, and not before Retry-After (zero: none). jitter is from
// [0,1).
func LockRetry(now, retryAfter time.Time, failures int, jitter float64) time.Time {
	wait := lockRetry
	for n := 1; n < failures && wait < maxLockRetry; n++ {
		wait *= 2
	}
	at := now.Add(time.Duration(float64(min(wait, maxLockRetry)) * (0.5 + jitter)))
	if retryAfter.After(at) {
		return retryAfter
	}
	return at
}
