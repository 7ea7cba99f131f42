// SPDX-License-Identifier: Apache-2.0

// Package fleet decides when this node may stop a pod without harm to the other nodes: one node at a time, and only
// while the control plane can spare a member.
//
// The nodes of a fleet share a lock through a lock server. A Lock is its configuration, a LockRecord this node's
// requests for it, a LockStatus its state for people. A Keeper takes and releases it through a Locker, which the
// adapter of a protocol implements. A pod manifest needs the lock if the configuration covers it (Lock.Covers): it
// waits for the lock, is restarted under it, and must pass its health check before the lock is released.
//
// The quorum is the number of members that the control plane needs. An Observation is the state of its members at one
// moment, each of them a Part. The lock server does not know which members are down, so the agent queries the others
// before it stops one.
//
// # Promises
//
//   - The record is saved before each request to the server, so that a crash forgets no lock.
//   - The node releases only a lock that it requested, and only at the server that granted it.
//   - The lock has no time-out: the node keeps it until every pod restarted under it has passed its health check.
//   - A member on this node is not stopped while another one is unhealthy or unknown. A part of this node that is
//     unhealthy does not prevent its own restart.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// The pods that a fleet lock covers.
const (
	LockControlPlane = "control-plane" // etcd and kube-apiserver
	LockAll          = "all"
)

// Lock configures the fleet lock, under which pods are restarted; the zero value: no lock.
type Lock struct {
	Pods string // LockControlPlane or LockAll
	Target
	ID string // of this node at the server
}

// Target is what the nodes of a fleet lock: a group of a lock server, or a Lease of the cluster.
type Target struct {
	Server string `json:"server,omitempty"` // URL of the lock server
	Group  string `json:"group,omitempty"`
	Lease  string `json:"lease,omitempty"` // NAMESPACE/NAME; Server and Group are then empty
}

// Name returns the name of the lock for people: its Lease, or its group.
func (t Target) Name() string { return cmp.Or(t.Lease, t.Group) }

// Place names for people what grants the lock.
func (t Target) Place() string {
	if t.Lease != "" {
		return "the Lease " + t.Lease
	}
	return t.Server
}

// FreeCommand returns the command that takes a lock in the cluster from its holder, for example a node that is gone;
// empty for a lock server.
func (t Target) FreeCommand() string {
	namespace, name, isLease := strings.Cut(t.Lease, "/")
	if !isLease {
		return ""
	}
	return "kubectl -n " + namespace + " patch lease " + name + ` --type merge -p '{"spec":{"holderIdentity":null}}'`
}

// Covers reports whether a pod is restarted under the lock.
func (l Lock) Covers(isControlPlane bool) bool {
	return l.Pods == LockAll || l.Pods == LockControlPlane && isControlPlane
}

// Locker is a lock shared by the nodes of a fleet, from the view of one node. It has no time-out: the holder keeps it
// until Unlock.
type Locker interface {
	// Lock takes the lock for this node, or keeps it. Even after an error the node may hold it.
	Lock(ctx context.Context) (LockAnswer, error)
	// Unlock releases the lock if the node holds it. It may return ErrLost if not.
	Unlock(ctx context.Context) error
}

// LockHolder is a node that holds a fleet lock, as named by the lock.
type LockHolder struct {
	ID    string    `json:"id"`
	Since time.Time `json:"since,omitzero"` // zero: unknown
	// Gone: the cluster has no node with this name.
	Gone bool `json:"gone,omitzero"`
}

// LockAnswer is a lock server's information about its lock. Most servers send none.
type LockAnswer struct {
	Holders []LockHolder
	Slots   int // how many nodes may hold it; 0: unknown
	// Retained: the server says that the node already held the lock.
	Retained bool
}

// Others returns the holders that conflict with the node id: all but id, if there are more than slots.
func (a LockAnswer) Others(id string) []LockHolder {
	var out []LockHolder
	for _, h := range a.Holders {
		if h.ID != id {
			out = append(out, h)
		}
	}
	if len(out) < max(a.Slots, 1) {
		return nil
	}
	return out
}

// LockError says that a lock was not granted, or not released. It is ErrHeld.
type LockError struct {
	Lock    string // for people, such as "Lease kube-system/a"; empty: a lock server, which Server names
	Server  string // host[:port]
	Status  int    // HTTP status; 0 if there was no answer
	Kind    string // of the server's error; empty if it sent none
	Value   string // the server's error for people
	Answer  LockAnswer
	RetryAt time.Time // from Retry-After; zero: none
	Err     error     // why there is no valid answer; nil: the server refused
	Taken   bool      // another node holds the lock, without an HTTP status that says so
	Unsent  bool      // no request that takes the lock can have reached the server
}

// Error returns, for example, "lock server lock.example.com: 409: all slots are taken (holder 1b4e...)" or
// "Lease kube-system/a: held by node-2 since 2026-05-01T12:00:00Z".
func (e *LockError) Error() string {
	text := e.place() + ": "
	if e.Status != 0 {
		text += fmt.Sprintf("%d: ", e.Status)
	}
	switch {
	case e.Err != nil:
		return text + e.Err.Error()
	case e.Taken && e.Value == "":
		return text + "held by " + holderNames("", e.Answer.Holders)
	case e.Value != "":
		text += e.Value
	case e.Kind != "":
		text += e.Kind
	default:
		text += "refused"
	}
	return text + holderText(e.Answer.Holders)
}

// place returns what answered, or did not.
func (e *LockError) place() string {
	switch {
	case e.Lock == "":
		return strings.TrimSpace("lock server " + e.Server)
	case e.Server == "" || e.Taken: // every server says the same
		return e.Lock
	}
	return e.Lock + " at " + e.Server
}

// IsTaken reports whether the server refused the lock because other nodes hold it.
func (e *LockError) IsTaken() bool {
	// airlock answers 500 to all failures.
	full := strings.Contains(e.Value, "currently locked") || strings.Contains(e.Value, "currently full")
	return e.Err == nil && (e.Taken || e.Status == 409 || e.Status == 423 || full)
}

// holderText returns the holders for the end of a sentence, as in " (holder a since 2026-05-01T12:00:00Z)".
func holderText(holders []LockHolder) string {
	if len(holders) == 0 {
		return ""
	}
	return " (" + holderNames("holder ", holders) + ")"
}

// holderNames returns the holders with their times, each after a word.
func holderNames(word string, holders []LockHolder) string {
	var named []string
	for _, h := range holders {
		name := word + h.ID
		if !h.Since.IsZero() {
			name += " since " + h.Since.UTC().Format(time.RFC3339)
		}
		if h.Gone {
			name += ", which is no node of the cluster"
		}
		named = append(named, name)
	}
	return strings.Join(named, ", ")
}

// Unwrap returns ErrHeld and Err.
func (e *LockError) Unwrap() []error {
	if e.Err == nil {
		return []error{release.ErrHeld}
	}
	return []error{release.ErrHeld, e.Err}
}

// ErrLost: this node does not hold the lock, so there is nothing to release.
var ErrLost = errors.New("this node does not hold the lock")

// ErrRetained: this node's id already holds the lock, and this node did not take it.
var ErrRetained = errors.New("the id of this node already has the lock, but this node did not take it")

// TrialError says that a lock does not work. Unlike for a taken lock, waiting does not help.
type TrialError struct{ Err error }

func (e *TrialError) Error() string { return e.Err.Error() }

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
	Since time.Time `json:"since,omitzero" metric:"lock_since_timestamp_seconds" help:"Since when the fleet lock is in its state; absent while it is free."`
	// PodManifests need the lock.
	PodManifests []string `json:"podManifests"`
	// Kept: the lock is held because a pod did not come up, so that the fleet stops.
	Kept bool `json:"kept" metric:"lock_kept" help:"1 if the node keeps the fleet lock because a pod did not become healthy, so that the fleet stops."`
	// Error is why the lock was not granted or released; Kind is the word of the lock server or API server for that.
	Error string `json:"error"`
	Kind  string `json:"kind"`
	// Holders are the nodes that hold it, as far as known.
	Holders []LockHolder `json:"holders"`
	RetryAt time.Time    `json:"retryAt,omitzero"`
	// WorkedAt is when the lock was last granted and released; absent: never with this configuration.
	WorkedAt time.Time `json:"workedAt,omitzero"`
	// Warning: the lock was granted to another node, too.
	Warning string `json:"warning"`
}

// IsStuck reports whether the server did not accept the release.
func (l *LockStatus) IsStuck() bool { return l.State == LockReleasing && l.Error != "" }

// Target returns what is locked.
func (l *LockStatus) Target() Target { return Target{Server: l.Server, Group: l.Group, Lease: l.Lease} }

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
