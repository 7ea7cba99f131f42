// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Lock is what the node did about its lock of the fleet. It is saved before a request is sent, so that a crash forgets
// no lock. The zero value is a node that neither has nor wants one.
type Lock struct {
	// State is waiting (asked for, and perhaps given), held, or releasing.
	State status.LockState `json:"state,omitempty"`
	Since time.Time        `json:"since,omitzero"`
	// Pods are the pod manifests that the lock was asked for.
	Pods []string `json:"pods,omitempty"`
	// Server and Group are where it was asked for.
	Server string `json:"server,omitempty"`
	Group  string `json:"group,omitempty"`
	// Given: the server said that it gave it.
	Given bool `json:"given,omitempty"`
	// Failures counts requests without an answer in a row.
	Failures int                  `json:"failures,omitempty"`
	RetryAt  time.Time            `json:"retryAt,omitzero"`
	Error    string               `json:"error,omitempty"`
	Kind     string               `json:"kind,omitempty"` // of Error, as the server names it
	Host     string               `json:"host,omitempty"` // of the server, with Error
	Status   int                  `json:"status,omitempty"`
	Holders  []release.LockHolder `json:"holders,omitempty"`
	// Others have the lock although this node was given it.
	Others []release.LockHolder `json:"others,omitempty"`
}

// Ask notes that the lock is about to be asked for, for a pod manifest. A lock that is held stays held.
func (l *Lock) Ask(file string, at policy.Lock, now time.Time) {
	l.Server, l.Group = at.Server, at.Group
	if l.State != status.LockWaiting && l.State != status.LockHeld {
		l.State, l.Since, l.RetryAt, l.Failures = status.LockWaiting, now.UTC(), time.Time{}, 0
	}
	if !slices.Contains(l.Pods, file) {
		l.Pods = append(l.Pods, file)
		slices.Sort(l.Pods)
	}
}

// Take notes that the server gave the lock. others have it, too.
func (l *Lock) Take(others []release.LockHolder, now time.Time) {
	if l.State != status.LockHeld {
		l.Since = now.UTC()
	}
	*l = Lock{
		State: status.LockHeld, Since: l.Since, Pods: l.Pods, Server: l.Server, Group: l.Group, Given: true, Others: others,
	}
}

// Fail notes that the server did not give the lock, or did not take it back.
func (l *Lock) Fail(err error, now time.Time, jitter float64) {
	said := &release.LockError{Err: err}
	if e, is := errors.AsType[*release.LockError](err); is {
		said = e
	}
	if l.State == status.LockHeld && said.IsTaken() { // another node was given it behind this node's back
		l.State, l.Since, l.Given = status.LockWaiting, now.UTC(), false
	}
	if l.Failures++; said.Status != 0 && said.Err == nil {
		l.Failures = 0
	}
	l.Error, l.Kind, l.Holders = outside.Text(err.Error()), said.Kind, said.Answer.Holders
	l.Host, l.Status = said.Server, said.Status
	l.RetryAt = policy.LockRetry(now, said.RetryAt, l.Failures, jitter).UTC()
}

// Release notes that the lock is about to be given back.
func (l *Lock) Release(now time.Time) {
	if l.State != status.LockReleasing {
		*l = Lock{State: status.LockReleasing, Since: now.UTC(), Server: l.Server, Group: l.Group, Given: l.Given}
	}
}

// Try notes that the lock is about to be asked for and given back at once. After a crash it is given back.
func (l *Lock) Try(at policy.Lock, now time.Time) {
	*l = Lock{State: status.LockReleasing, Since: now.UTC(), Server: at.Server, Group: at.Group}
}

// IsStuck reports whether the server did not take the lock back.
func (l *Lock) IsStuck() bool { return l.State == status.LockReleasing && l.Error != "" }

// LockWorked is the lock that was last given and given back.
type LockWorked struct {
	At     time.Time `json:"at"`
	Server string    `json:"server"`
	Group  string    `json:"group"`
	ID     string    `json:"id"`
}

// Since is when the configured lock worked last; zero: never.
func (w LockWorked) Since(at policy.Lock) time.Time {
	if w.Server != at.Server || w.Group != at.Group || w.ID != at.ID {
		return time.Time{}
	}
	return w.At
}

// IsElsewhere reports whether the lock was asked for at another server, or in another group, than the configured one.
func (l *Lock) IsElsewhere(at policy.Lock) bool {
	return l.State != "" && (l.Server != at.Server || l.Group != at.Group)
}

// Hold returns the hold of an automatic apply of a pod manifest that waits for the lock.
func (l *Lock) Hold(file string, now time.Time) (status.Hold, bool) {
	wait := l.RetryAt.Sub(now)
	waits := l.State == status.LockWaiting && slices.Contains(l.Pods, file) && wait > 0 && wait <= maxLockWait
	return status.Hold{Name: status.HoldLock, Reason: l.Error}, waits
}

// maxLockWait is beyond every RetryAt: a later one was recorded under another clock.
const maxLockWait = 2 * time.Hour

// IsLockDue reports whether the lock is to be given back now: nothing waits for it, and what was restarted under it is
// proved. It is kept while a pod failed, does not run, cannot be read, or is to be rolled back.
func (r *Record) IsLockDue(use InUse, now time.Time) bool {
	wait := r.Lock.RetryAt.Sub(now)
	isPaused := r.Lock.RetryAt.After(now) && wait <= maxLockWait
	switch l := r.Lock; l.State {
	case status.LockWaiting:
		return !slices.ContainsFunc(l.Pods, func(file string) bool {
			return use.Pods[file].AwaitsLock || r.Overrides[file].Pending
		})
	case status.LockHeld:
		return !retention{Record: r, use: use}.keepsLock() && !r.isInSet(l.Pods)
	case status.LockReleasing:
		return !isPaused
	default:
		return false
	}
}

// keepsLock reports whether a pod that was restarted under the lock is not proved.
func (t retention) keepsLock() bool {
	return slices.ContainsFunc(t.Lock.Pods, func(file string) bool {
		p, known := t.use.Pods[file]
		return known && (p.Broken || !p.AllRun || t.runsUnproved(file, p)) || hasFailed(t.Record, file)
	})
}

// hasFailed reports whether a pod did not come up, or is to be rolled back. After another failure it runs as before.
func hasFailed(r *Record, file string) bool {
	return r.Failed[file].Running != "" || r.Overrides[file].Pending
}

// FailedPods returns the pod manifests that failed under the lock, for which it is kept. r is its record.
func (l *Lock) FailedPods(r *Record) []string {
	if l.State != status.LockHeld {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(l.Pods), func(file string) bool { return !hasFailed(r, file) })
}

// LockStatus returns the status of the lock; nil: none is configured.
func (r *Record) LockStatus(at policy.Lock) *status.LockStatus {
	l := r.Lock
	if at.Pods == "" {
		return nil
	}
	s := &status.LockStatus{
		Server: at.Server, Group: at.Group, ID: at.ID, Pods: at.Pods, State: cmp.Or(l.State, status.LockFree), Since: l.Since,
		PodManifests: append([]string{}, l.Pods...), Kept: len(l.FailedPods(r)) > 0, Error: l.Error, Kind: l.Kind,
		Holders: append([]release.LockHolder{}, l.Holders...), RetryAt: l.RetryAt, WorkedAt: r.LockWorked.Since(at),
	}
	if len(l.Others) > 0 {
		s.Warning = "the lock server gave the lock to another node, too" + release.HolderText(l.Others)
	}
	return s
}
