// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/internal/outside"
)

// LockRecord is what the node did about its lock of the fleet. It is saved before a request is sent, so that a crash
// forgets no lock. The zero value is a node that neither has nor wants one.
type LockRecord struct {
	// State is waiting (asked for, and perhaps given), held, or releasing.
	State LockState `json:"state,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Pods are the pod manifests that the lock was asked for.
	Pods []string `json:"pods,omitempty"`
	// Server and Group are where it was asked for.
	Server string `json:"server,omitempty"`
	Group  string `json:"group,omitempty"`
	// Given: the server said that it gave it.
	Given bool `json:"given,omitempty"`
	// Failures counts requests without an answer in a row.
	Failures int          `json:"failures,omitempty"`
	RetryAt  time.Time    `json:"retryAt,omitzero"`
	Error    string       `json:"error,omitempty"`
	Kind     string       `json:"kind,omitempty"` // of Error, as the server names it
	Host     string       `json:"host,omitempty"` // of the server, with Error
	Status   int          `json:"status,omitempty"`
	Holders  []LockHolder `json:"holders,omitempty"`
	// Others have the lock although this node was given it.
	Others []LockHolder `json:"others,omitempty"`
}

// Ask notes that the lock is about to be asked for, for a pod manifest. A lock that is held stays held.
func (l *LockRecord) Ask(file string, at Lock, now time.Time) {
	l.Server, l.Group = at.Server, at.Group
	if l.State != LockWaiting && l.State != LockHeld {
		l.State, l.Since, l.RetryAt, l.Failures = LockWaiting, now.UTC(), time.Time{}, 0
	}
	if !slices.Contains(l.Pods, file) {
		l.Pods = append(l.Pods, file)
		slices.Sort(l.Pods)
	}
}

// Take notes that the server gave the lock. others have it, too.
func (l *LockRecord) Take(others []LockHolder, now time.Time) {
	if l.State != LockHeld {
		l.Since = now.UTC()
	}
	*l = LockRecord{
		State: LockHeld, Since: l.Since, Pods: l.Pods, Server: l.Server, Group: l.Group, Given: true, Others: others,
	}
}

// Fail notes that the server did not give the lock, or did not take it back.
func (l *LockRecord) Fail(err error, now time.Time, jitter float64) {
	said := &LockError{Err: err}
	if e, is := errors.AsType[*LockError](err); is {
		said = e
	}
	if l.State == LockHeld && said.IsTaken() { // another node was given it behind this node's back
		l.State, l.Since, l.Given = LockWaiting, now.UTC(), false
	}
	if l.Failures++; said.Status != 0 && said.Err == nil {
		l.Failures = 0
	}
	l.Error, l.Kind, l.Holders = outside.Text(err.Error()), said.Kind, said.Answer.Holders
	l.Host, l.Status = said.Server, said.Status
	l.RetryAt = retryAt(now, said.RetryAt, l.Failures, jitter).UTC()
}

// Release notes that the lock is about to be given back.
func (l *LockRecord) Release(now time.Time) {
	if l.State != LockReleasing {
		*l = LockRecord{State: LockReleasing, Since: now.UTC(), Server: l.Server, Group: l.Group, Given: l.Given}
	}
}

// Try notes that the lock is about to be asked for and given back at once. After a crash it is given back.
func (l *LockRecord) Try(at Lock, now time.Time) {
	*l = LockRecord{State: LockReleasing, Since: now.UTC(), Server: at.Server, Group: at.Group}
}

// IsStuck reports whether the server did not take the lock back.
func (l *LockRecord) IsStuck() bool { return l.State == LockReleasing && l.Error != "" }

// isElsewhere reports whether the lock was asked for at another server, or in another group, than the configured one.
func (l *LockRecord) isElsewhere(at Lock) bool { return l.Server != at.Server || l.Group != at.Group }

// Hold returns why an automatic apply of a pod manifest waits for the lock, if it does.
func (l *LockRecord) Hold(file string, now time.Time) (reason string, waits bool) {
	return l.Error, l.State == LockWaiting && slices.Contains(l.Pods, file) && l.isPaused(now)
}

// maxLockWait is beyond every RetryAt: a later one was recorded under another clock.
const maxLockWait = 2 * time.Hour

// isPaused reports whether the server is not asked yet.
func (l *LockRecord) isPaused(now time.Time) bool {
	wait := l.RetryAt.Sub(now)
	return wait > 0 && wait <= maxLockWait
}

// Pod is what the lock has to know of a pod manifest.
type Pod struct {
	Awaits bool // it is applied or rolled back as soon as the node has the lock
	// Unproved: it failed, does not run, cannot be read, is to be rolled back, or is not proved.
	Unproved bool
}

// IsDue reports whether the lock is to be given back now: no pod waits for it, and what was restarted under it is
// proved. of knows the pod manifests.
func (l *LockRecord) IsDue(now time.Time, of func(file string) Pod) bool {
	switch l.State {
	case LockWaiting:
		return !slices.ContainsFunc(l.Pods, func(file string) bool { return of(file).Awaits })
	case LockHeld:
		return !slices.ContainsFunc(l.Pods, func(file string) bool { return of(file).Unproved })
	case LockReleasing:
		return !l.isPaused(now)
	default:
		return false
	}
}

// LockWorked is the lock that was last given and given back.
type LockWorked struct {
	At     time.Time `json:"at"`
	Server string    `json:"server"`
	Group  string    `json:"group"`
	ID     string    `json:"id"`
}

// Since is when the configured lock worked last; zero: never.
func (w LockWorked) Since(at Lock) time.Time {
	if w.Server != at.Server || w.Group != at.Group || w.ID != at.ID {
		return time.Time{}
	}
	return w.At
}

// The waits for a lock. A holder restarts its pods within minutes.
const (
	lockRetry    = time.Minute      // after a refusal
	maxLockRetry = 15 * time.Minute // after failures in a row
)

// retryAt returns when a lock server is asked again: a minute after a refusal, up to 15 minutes after failures
// without an answer, each times a factor from 0.5 to 1.5, and not before Retry-After (zero: none). jitter is from
// [0,1).
func retryAt(now, retryAfter time.Time, failures int, jitter float64) time.Time {
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
