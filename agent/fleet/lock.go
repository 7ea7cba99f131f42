// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// The pods that a lock of the fleet covers.
const (
	LockControlPlane = "control-plane" // etcd and kube-apiserver
	LockAll          = "all"
)

// Lock is the lock of the fleet, under which pods are restarted; the zero value: there is none.
type Lock struct {
	Pods   string // LockControlPlane or LockAll
	Server string // URL of the lock server
	Group  string
	ID     string // of this node towards the server
}

// Covers reports whether a pod is restarted under the lock.
func (l Lock) Covers(isControlPlane bool) bool {
	return l.Pods == LockAll || l.Pods == LockControlPlane && isControlPlane
}

// Locker is a lock that the nodes of a fleet share, as one of them has it. It has no time-out: who has it keeps it
// until Unlock.
type Locker interface {
	// Lock takes the lock for this node, or keeps it. After an error the node may have it nevertheless.
	Lock(ctx context.Context) (LockAnswer, error)
	// Unlock gives it back, if the node has it.
	Unlock(ctx context.Context) error
}

// LockHolder is a node that has a lock of the fleet, as the lock server names it.
type LockHolder struct {
	ID    string    `json:"id"`
	Since time.Time `json:"since,omitzero"` // zero: the server does not say
}

// LockAnswer is what a lock server says of its lock. Most servers say nothing.
type LockAnswer struct {
	Holders []LockHolder
	Slots   int // how many nodes may have it; 0: the server does not say
	// Retained: the server says that the node had the lock already.
	Retained bool
}

// Others returns the holders that must not be there while the node id has the lock: all but id,
// where there are more than slots.
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

// LockError is a lock that was not given, or not given back. It is ErrHeld.
type LockError struct {
	Server  string // host[:port]
	Status  int    // HTTP status; 0: there was no answer
	Kind    string // of the server's error; empty: it gave none
	Value   string // the server's error for people
	Answer  LockAnswer
	RetryAt time.Time // from Retry-After; zero: none
	Err     error     // why there is no answer that counts; nil: the server refused
	Unsent  bool      // there was no connection, so that the server got no request
}

// Error is as in "lock server lock.example.com: 409: all slots are taken (holder 1b4e...)".
func (e *LockError) Error() string {
	text := "lock server " + e.Server + ": "
	if e.Status != 0 {
		text += fmt.Sprintf("%d: ", e.Status)
	}
	switch {
	case e.Err != nil:
		return text + e.Err.Error()
	case e.Value != "":
		text += e.Value
	case e.Kind != "":
		text += e.Kind
	default:
		text += "refused"
	}
	return text + holderText(e.Answer.Holders)
}

// IsTaken reports whether the server refused the lock because others have it.
func (e *LockError) IsTaken() bool {
	// airlock answers 500 to all that does not work.
	full := strings.Contains(e.Value, "currently locked") || strings.Contains(e.Value, "currently full")
	return e.Err == nil && (e.Status == 409 || e.Status == 423 || full)
}

// holderText names holders behind a sentence, as in " (holder a since 2026-05-01T12:00:00Z)".
func holderText(holders []LockHolder) string {
	var named []string
	for _, h := range holders {
		name := "holder " + h.ID
		if !h.Since.IsZero() {
			name += " since " + h.Since.UTC().Format(time.RFC3339)
		}
		named = append(named, name)
	}
	if len(named) == 0 {
		return ""
	}
	return " (" + strings.Join(named, ", ") + ")"
}

// Unwrap returns ErrHeld and Err.
func (e *LockError) Unwrap() []error {
	if e.Err == nil {
		return []error{release.ErrHeld}
	}
	return []error{release.ErrHeld, e.Err}
}

// ErrRetained: the lock server says that this node's id has the lock already, and this node did not take it.
var ErrRetained = errors.New(
	"the lock server says that this node's id has the lock already, and this node did not take it")

// TrialError is a lock that does not work. Unlike one that others have it is nothing to wait for.
type TrialError struct{ Err error }

func (e *TrialError) Error() string { return e.Err.Error() }
