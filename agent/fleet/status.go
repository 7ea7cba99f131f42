// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"time"
)

// LockState is what the node knows of its lock of the fleet.
type LockState string

// The states of the lock.
const (
	LockFree      LockState = "free"      // the node neither has nor wants it
	LockWaiting   LockState = "waiting"   // the node asks for it, and may have it although no answer said so
	LockHeld      LockState = "held"      // the node has it
	LockReleasing LockState = "releasing" // the node gives it back, and the server did not confirm that
)

// LockStatus is the lock of the fleet as this node sees it.
type LockStatus struct {
	Server string    `json:"server"` // URL
	Group  string    `json:"group"`
	ID     string    `json:"id"`   // of this node
	Pods   string    `json:"pods"` // "control-plane" or "all"
	State  LockState `json:"state"`
	// Since: of State; absent while it is free.
	Since time.Time `json:"since,omitzero" metric:"lock_since_timestamp_seconds" help:"Since when it has the lock, waits for it or gives it back; not there otherwise."`
	// PodManifests are those that it is wanted for.
	PodManifests []string `json:"podManifests"`
	// Kept: it is held because one of them did not come up, so that the fleet stops.
	Kept bool `json:"kept" metric:"lock_kept" help:"1 where the lock is kept because a pod did not come up, so that the fleet stops."`
	// Error is why it was not given, or not given back; Kind is the server's word for it.
	Error string `json:"error"`
	Kind  string `json:"kind"`
	// Holders are the nodes that have it, where the server says so.
	Holders []LockHolder `json:"holders"`
	RetryAt time.Time    `json:"retryAt,omitzero"`
	// WorkedAt is when the server last gave it to this node and took it back; absent: never, as it is configured now.
	WorkedAt time.Time `json:"workedAt,omitzero"`
	// Warning: the server gave it to this node and another one.
	Warning string `json:"warning"`
}

// IsStuck reports whether the server did not take the lock back.
func (l *LockStatus) IsStuck() bool { return l.State == LockReleasing && l.Error != "" }

// LockStatus returns the status of the lock; nil: none is configured. failed are the pod manifests for which it is
// kept.
func (l *LockRecord) LockStatus(at Lock, worked LockWorked, failed []string) *LockStatus {
	if at.Pods == "" {
		return nil
	}
	s := &LockStatus{
		Server: at.Server, Group: at.Group, ID: at.ID, Pods: at.Pods, State: cmp.Or(l.State, LockFree), Since: l.Since,
		PodManifests: append([]string{}, l.Pods...), Kept: len(failed) > 0, Error: l.Error, Kind: l.Kind,
		Holders: append([]LockHolder{}, l.Holders...), RetryAt: l.RetryAt, WorkedAt: worked.Since(at),
	}
	if len(l.Others) > 0 {
		s.Warning = "the lock server gave the lock to another node, too" + holderText(l.Others)
	}
	return s
}
