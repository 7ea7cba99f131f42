// SPDX-License-Identifier: Apache-2.0

package release

import (
	"fmt"
	"strings"
	"time"
)

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
	return text + HolderText(e.Answer.Holders)
}

// IsTaken reports whether the server refused the lock because others have it.
func (e *LockError) IsTaken() bool {
	// airlock answers 500 to all that does not work.
	full := strings.Contains(e.Value, "currently locked") || strings.Contains(e.Value, "currently full")
	return e.Err == nil && (e.Status == 409 || e.Status == 423 || full)
}

// HolderText names holders behind a sentence, as in " (holder a since 2026-05-01T12:00:00Z)".
func HolderText(holders []LockHolder) string {
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
		return []error{ErrHeld}
	}
	return []error{ErrHeld, e.Err}
}

// HoldError is an apply that a hold kept from beginning. It is ErrHeld.
type HoldError struct {
	Hold string // its name
	Err  error  // why; it names what was seen
}

// Error is as in "held: quorum: etcd member b does not answer".
func (e *HoldError) Error() string { return "held: " + e.Hold + ": " + e.Err.Error() }

// Unwrap returns ErrHeld and Err.
func (e *HoldError) Unwrap() []error { return []error{ErrHeld, e.Err} }
