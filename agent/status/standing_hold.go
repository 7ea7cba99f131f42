// SPDX-License-Identifier: Apache-2.0

package status

import "time"

// StandingHold is a hold of a person or the configuration that has not ended, whether or not something is offered.
type StandingHold struct {
	Repository string     `json:"repository" dbus:"repository"` // "*": all
	Name       string     `json:"name" dbus:"name"`             // HoldRequested or HoldFreeze
	Reason     string     `json:"reason" dbus:"reason"`
	Since      *time.Time `json:"since" dbus:"since"` // null: not known
	Until      *time.Time `json:"until" dbus:"until"` // null: until a person or the configuration removes it
	By         Actor      `json:"by" dbus:",inline"`
	Remedy     string     `json:"remedy"` // what ends it, for people
}

// Explained returns the hold with its remedy.
func (h StandingHold) Explained() StandingHold {
	as := Hold{Name: h.Name, Image: h.Repository, By: h.By.Kind, Remedy: h.Remedy}
	if h.Until != nil {
		as.Until = *h.Until
	}
	h.Remedy = as.Explained().Remedy
	return h
}
