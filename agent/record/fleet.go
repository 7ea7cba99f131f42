// SPDX-License-Identifier: Apache-2.0

package record

import (
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/fleet"
)

// IsLockDue reports whether the fleet lock must be released now. It is kept while a pod that was restarted under it
// failed, does not run, cannot be read, has a pending rollback, or belongs to a begun set.
func (r *Record) IsLockDue(use InUse, now time.Time) bool {
	t := retention{r, use, now}
	return r.Lock.IsDue(now, func(file string) fleet.Pod {
		p, known := use.Pods[file]
		isUnverified := known && (p.Broken || !p.AllRun || t.runsUnverified(file, p))
		return fleet.Pod{
			Awaits:     p.AwaitsLock || r.Overrides[file].Pending,
			Unverified: isUnverified || r.hasFailed(file) || r.SetOf(file) != "",
		}
	})
}

// hasFailed reports whether a pod did not come up, or has a pending rollback. After another failure it still runs its
// previous release.
func (r *Record) hasFailed(file string) bool {
	return r.Failed[file].Running != "" || r.Overrides[file].Pending
}

// FailedUnderLock returns the pod manifests that failed under the lock, for which it is kept.
func (r *Record) FailedUnderLock() []string {
	if r.Lock.State != fleet.LockHeld {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.Lock.Pods), func(file string) bool { return !r.hasFailed(file) })
}

// LockStatus returns the status of the lock; nil if none is configured.
func (r *Record) LockStatus(at fleet.Lock) *fleet.LockStatus {
	return r.Lock.LockStatus(at, r.LockWorked, r.FailedUnderLock())
}
