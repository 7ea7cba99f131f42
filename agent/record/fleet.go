// SPDX-License-Identifier: Apache-2.0

package record

import (
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/fleet"
)

// IsLockDue reports whether the lock of the fleet is to be given back now. It is kept while a pod that was restarted
// under it failed, does not run, cannot be read, is to be rolled back, or belongs to a begun set.
func (r *Record) IsLockDue(use InUse, now time.Time) bool {
	t := retention{r, use, now}
	return r.Lock.IsDue(now, func(file string) fleet.Pod {
		p, known := use.Pods[file]
		isUnproved := known && (p.Broken || !p.AllRun || t.runsUnproved(file, p))
		return fleet.Pod{
			Awaits:   p.AwaitsLock || r.Overrides[file].Pending,
			Unproved: isUnproved || r.hasFailed(file) || r.SetOf(file) != "",
		}
	})
}

// hasFailed reports whether a pod did not come up, or is to be rolled back. After another failure it runs as before.
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

// LockStatus returns the status of the lock; nil: none is configured.
func (r *Record) LockStatus(at fleet.Lock) *fleet.LockStatus {
	return r.Lock.LockStatus(at, r.LockWorked, r.FailedUnderLock())
}
