// SPDX-License-Identifier: Apache-2.0

package status

import "time"

// StandingHold is a hold of a person or the configuration that has not ended, whether or not something is offered.
type StandingHold struct {
	Repository string     `json:"repository"` // "*": all
	Name       string     `json:"name"`       // HoldRequested or HoldFreeze
	Reason     string     `json:"reason"`
	Since      *time.Time `json:"since"` // null: not known
	Until      *time.Time `json:"until"` // null: until somebody removes it
	By         Actor      `json:"by"`
}

// AsHold returns the hold as a pod manifest has it.
func (h StandingHold) AsHold() Hold {
	out := Hold{Name: h.Name, Reason: h.Reason, Image: h.Repository, By: h.By.Kind}
	if h.Until != nil {
		out.Until = *h.Until
	}
	return out
}
