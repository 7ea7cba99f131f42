// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// LockRecord records the node's requests for its fleet lock. It is saved before each request, so that a crash forgets
// no lock. The zero value is a node that neither holds nor wants the lock.
type LockRecord struct {
	// State is waiting (requested, and perhaps granted), held, releasing, or refused.
	State LockState `json:"state,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Pods are the pod manifests that need the lock.
	Pods []string `json:"pods,omitempty"`
	Target
	// Unsent: the node waits for the lock, and no request that takes it can have reached the server so far.
	Unsent bool `json:"unsent,omitempty"`
	// Given: the server confirmed the grant.
	Given bool `json:"given,omitempty"`
	// Failures counts consecutive requests without an answer.
	Failures int          `json:"failures,omitempty"`
	RetryAt  time.Time    `json:"retryAt,omitzero"`
	Error    string       `json:"error,omitempty"`
	Kind     string       `json:"kind,omitempty"` // of Error, by the server's name
	Host     string       `json:"host,omitempty"` // of the server that answered with Error
	Status   int          `json:"status,omitempty"`
	Holders  []LockHolder `json:"holders,omitempty"`
	// Others hold the lock although it was granted to this node.
	Others []LockHolder `json:"others,omitempty"`
}

// as returns the record of a state of the same lock, without more.
func (l *LockRecord) as(state LockState, since time.Time) LockRecord {
	return LockRecord{State: state, Since: since.UTC(), Target: l.Target}
}

// Ask records a request for the lock before it is sent, for a pod manifest. A held lock stays held.
func (l *LockRecord) Ask(file string, at Lock, now time.Time) {
	l.Target = at.Target
	l.Unsent = false
	if l.State != LockWaiting && l.State != LockHeld {
		l.State, l.Since, l.RetryAt, l.Failures = LockWaiting, now.UTC(), time.Time{}, 0
	}
	if !slices.Contains(l.Pods, file) {
		l.Pods = append(l.Pods, file)
		slices.Sort(l.Pods)
	}
}

// Take records that the server granted the lock. others hold it, too.
func (l *LockRecord) Take(others []LockHolder, now time.Time) {
	if l.State != LockHeld {
		l.Since = now
	}
	held := l.as(LockHeld, l.Since)
	held.Pods, held.Given, held.Others = l.Pods, true, others
	*l = held
}

// Fail records that the server did not grant or did not release the lock.
func (l *LockRecord) Fail(err error, now time.Time, jitter float64) {
	said := &LockError{Err: err}
	if e, is := errors.AsType[*LockError](err); is {
		said = e
	}
	if l.State == LockHeld && said.IsTaken() { // the server has meanwhile granted it to another node
		l.State, l.Since, l.Given = LockWaiting, now.UTC(), false
	}
	if l.Failures++; said.Err == nil {
		l.Failures = 0
	}
	l.Error, l.Kind, l.Holders = outside.Text(err.Error()), said.Kind, said.Answer.Holders
	l.Host, l.Status = said.Server, said.Status
	l.RetryAt = retryAt(now, said.RetryAt, l.Failures, jitter).UTC()
}

// Release records a release before the request is sent.
func (l *LockRecord) Release(now time.Time) {
	if l.State != LockReleasing {
		releasing := l.as(LockReleasing, now)
		releasing.Given = l.Given
		*l = releasing
	}
}

// Try records a lock that is requested and released at once. After a crash the agent releases it.
func (l *LockRecord) Try(at Lock, now time.Time) {
	l.Target = at.Target
	*l = l.as(LockReleasing, now)
}

// IsStuck reports whether the server did not accept the release.
func (l *LockRecord) IsStuck() bool { return l.State == LockReleasing && l.Error != "" }

// forget records that the node does not have the lock any more. was is the record before: a request in vain stays as a
// refusal.
func (l *LockRecord) forget(was LockRecord, now time.Time) {
	*l = LockRecord{}
	if was.State == LockWaiting && was.Error != "" {
		l.Refuse(was, now)
	}
}

// Refuse records that the node requested the lock in vain, and does not hold it. was is the record of the request.
func (l *LockRecord) Refuse(was LockRecord, now time.Time) {
	refused := was.as(LockRefused, now)
	refused.Pods, refused.Holders = was.Pods, was.Holders
	refused.Error, refused.Kind, refused.Host, refused.Status = was.Error, was.Kind, was.Host, was.Status
	*l = refused
}

// Retain forgets a refusal when nothing is offered any more to the pods that requested the lock.
func (l *LockRecord) Retain(isOffered func(file string) bool) {
	if l.State == LockRefused && !slices.ContainsFunc(l.Pods, isOffered) {
		*l = LockRecord{}
	}
}

// isUntaken reports whether no request that may have taken the lock was sent.
func (l *LockRecord) isUntaken() bool { return l.State.IsIdle() || l.State == LockWaiting && l.Unsent }

// Hold returns why an automatic apply of a pod manifest waits for the lock, if it does.
func (l *LockRecord) Hold(file string, now time.Time) (reason string, waits bool) {
	return l.Error, l.State == LockWaiting && slices.Contains(l.Pods, file) && l.isPaused(now)
}

// maxLockWait exceeds every RetryAt: a later one was recorded under another clock.
const maxLockWait = 2 * time.Hour

// isPaused reports whether it is too early to ask the server.
func (l *LockRecord) isPaused(now time.Time) bool {
	wait := l.RetryAt.Sub(now)
	return wait > 0 && wait <= maxLockWait
}

// Pod is the state of a pod manifest that matters to the lock.
type Pod struct {
	Awaits bool // it will be applied or rolled back as soon as the node holds the lock
	// Unverified: it failed, does not run, cannot be read, has a pending rollback, or has not passed its health check.
	Unverified bool
}

// IsDue reports whether the lock can be released now: no pod waits for it, and all pods restarted under it have passed
// their health checks. of returns the state of a pod manifest.
func (l *LockRecord) IsDue(now time.Time, of func(file string) Pod) bool {
	switch l.State {
	case LockWaiting:
		return !slices.ContainsFunc(l.Pods, func(file string) bool { return of(file).Awaits })
	case LockHeld:
		return !slices.ContainsFunc(l.Pods, func(file string) bool { return of(file).Unverified })
	case LockReleasing:
		return !l.isPaused(now)
	default:
		return false
	}
}

// LockWorked is the last lock that was granted and released.
type LockWorked struct {
	At time.Time `json:"at"`
	Target
	ID string `json:"id"`
}

// Since returns when the configured lock worked last; zero: never.
func (w LockWorked) Since(at Lock) time.Time {
	if w.Target != at.Target || w.ID != at.ID {
		return time.Time{}
	}
	return w.At
}

// The waits for a lock. A holder restarts its pods within minutes.
const (
	lockRetry    = time.Minute      // after a refusal
	maxLockRetry = 15 * time.Minute // after consecutive failures
)

// retryAt returns when a lock server is asked again: a minute after a refusal, up to 15 minutes after failures without
// an answer, each times a factor from 0.5 to 1.5, and not before retryAfter, the server's Retry-After (zero: none).
// jitter is from [0,1).
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
