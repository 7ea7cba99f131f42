// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"time"
)

// StandingHold is an active hold of a person or the configuration, with or without an offer.
type StandingHold struct {
	Repository string     `json:"repository" dbus:"repository"` // "*": all
	Name       string     `json:"name" dbus:"name"`             // HoldRequested or HoldFreeze
	Reason     string     `json:"reason" dbus:"reason"`
	Since      *time.Time `json:"since" dbus:"since"` // null if unknown
	Until      *time.Time `json:"until" dbus:"until"` // null: until a person or the configuration removes it
	By         Actor      `json:"by" dbus:",inline"`
	Remedy     string     `json:"remedy"`  // how to end it, for people
	Summary    string     `json:"summary"` // as of a Hold
}

// Explained returns the hold with its summary and remedy.
func (h StandingHold) Explained() StandingHold {
	as := Hold{Name: h.Name, Image: h.Repository, By: h.By.Kind}
	if h.Name == HoldRequested {
		as.Note = h.Reason
	}
	if h.Until != nil {
		as.Until = *h.Until
	}
	as = as.Explained()
	h.Summary, h.Remedy = as.Summary, cmp.Or(h.Remedy, as.Remedy)
	return h
}
