// SPDX-License-Identifier: Apache-2.0

package status

import (
	"time"

	"github.com/kubic-project/image-update-agent/agent/release"
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
	Holders []release.LockHolder `json:"holders"`
	RetryAt time.Time            `json:"retryAt,omitzero"`
	// WorkedAt is when the server last gave it to this node and took it back; absent: never, as it is configured now.
	WorkedAt time.Time `json:"workedAt,omitzero"`
	// Warning: the server gave it to this node and another one.
	Warning string `json:"warning"`
}
