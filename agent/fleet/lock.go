// SPDX-License-Identifier: Apache-2.0

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
	Pods   string // LockControlPlane or LockAll
	Server string // URL of the lock server
	Group  string
	Lease  string // NAMESPACE/NAME in the cluster; Server and Group are then empty
	ID     string // of this node at the server
}

// Name returns the name of the lock for people: its Lease, or its group.
func (l Lock) Name() string { return cmp.Or(l.Lease, l.Group) }

// Covers reports whether a pod is restarted under the lock.
func (l Lock) Covers(isControlPlane bool) bool {
	return l.Pods == LockAll || l.Pods == LockControlPlane && isControlPlane
}

// Locker is a lock shared by the nodes of a fleet, from the view of one node. It has no time-out: the holder keeps it
// until Unlock.
type Locker interface {
	// Lock takes the lock for this node, or keeps it. Even after an error the node may hold it.
	Lock(ctx context.Context) (LockAnswer, error)
	// Unlock releases it, if the node holds it. It may return ErrLost if the node does not.
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
