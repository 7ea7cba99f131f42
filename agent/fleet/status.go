// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"strings"
	"time"
)

// LockState is the state of the fleet lock as this node knows it.
type LockState string

// The states of the lock.
const (
	LockFree      LockState = "free"      // the node neither holds nor wants it
	LockWaiting   LockState = "waiting"   // the node requests it, and may hold it without a confirmation
	LockHeld      LockState = "held"      // the node holds it
	LockReleasing LockState = "releasing" // the node releases it without a confirmation so far
	// LockRefused: the node requested it in vain, and requests it again only with another apply.
	LockRefused LockState = "refused"
)

// IsIdle reports whether the node neither holds nor wants the lock.
func (s LockState) IsIdle() bool { return s == "" || s == LockFree || s == LockRefused }

// LockStatus is the fleet lock as this node sees it.
type LockStatus struct {
	Server string    `json:"server"` // URL
	Group  string    `json:"group"`
	Lease  string    `json:"lease"` // NAMESPACE/NAME; Server and Group are then empty
	ID     string    `json:"id"`    // of this node
	Pods   string    `json:"pods"`  // "control-plane" or "all"
	State  LockState `json:"state"`
	// Since: of State; absent while it is free.
	Since time.Time `json:"since,omitzero" metric:"lock_since_timestamp_seconds" help:"Since when the lock of the fleet is in its state; absent while it is free."`
	// PodManifests are those that need it.
	PodManifests []string `json:"podManifests"`
	// Kept: it is held because one of them did not come up, so that the fleet stops.
	Kept bool `json:"kept" metric:"lock_kept" help:"1 if the node keeps the lock of the fleet because a pod did not become healthy, so that the fleet stops."`
	// Error is why it was not granted, or not released; Kind is the word for it of a lock server or an API server.
	Error string `json:"error"`
	Kind  string `json:"kind"`
	// Holders are the nodes that hold it, as far as known.
	Holders []LockHolder `json:"holders"`
	RetryAt time.Time    `json:"retryAt,omitzero"`
	// WorkedAt is when it was last granted and released; absent: never with the current configuration.
	WorkedAt time.Time `json:"workedAt,omitzero"`
	// Warning: it was granted to this node and another one.
	Warning string `json:"warning"`
}

// IsStuck reports whether the server did not accept the release.
func (l *LockStatus) IsStuck() bool { return l.State == LockReleasing && l.Error != "" }

// FreeCommand returns the command that takes a lock in the cluster from its holder, for example a node that is gone;
// empty for a lock server.
func (l *LockStatus) FreeCommand() string {
	namespace, name, _ := strings.Cut(l.Lease, "/")
	if l.Lease == "" {
		return ""
	}
	return "kubectl -n " + namespace + " patch lease " + name + ` --type merge -p '{"spec":{"holderIdentity":null}}'`
}

// LockStatus returns the status of the lock; nil if none is configured. failed are the pod manifests for which it is
// kept.
func (l *LockRecord) LockStatus(at Lock, worked LockWorked, failed []string) *LockStatus {
	if at.Pods == "" {
		return nil
	}
	s := &LockStatus{
		Server: at.Server, Group: at.Group, Lease: at.Lease, ID: at.ID, Pods: at.Pods,
		State: cmp.Or(l.State, LockFree), Since: l.Since,
		PodManifests: append([]string{}, l.Pods...), Kept: len(failed) > 0, Error: l.Error, Kind: l.Kind,
		Holders: append([]LockHolder{}, l.Holders...), RetryAt: l.RetryAt, WorkedAt: worked.Since(at),
	}
	if len(l.Others) > 0 {
		s.Warning = "another node has the lock, too" + holderText(l.Others)
	}
	return s
}
