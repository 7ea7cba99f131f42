// SPDX-License-Identifier: Apache-2.0

package record

import (
	"time"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Lost is a record that was lost: holds, denials, approvals and rollback targets are unknown until a person confirms
// it.
type Lost struct {
	At     time.Time `json:"at,omitzero"`
	Reason string    `json:"reason"`
}

// Begin ends the beginning of an empty record. lost is why the node is known to have had another one, unless the store
// has said why; empty if it had none. It reports whether a record was lost.
func (r *Record) Begin(lost string, now time.Time) bool {
	r.New = false
	if r.Lost == nil && lost != "" {
		r.Lost = &Lost{Reason: lost}
	}
	if r.Lost != nil {
		r.Lost.At, r.Lost.Reason = now.UTC(), outside.Text(r.Lost.Reason)
	}
	return r.Lost != nil
}

// WhyLost returns the reason for the state of a node that has lost its record; nil if it has not.
func (r *Record) WhyLost() []status.Reason {
	if r.Lost == nil {
		return nil
	}
	return []status.Reason{{
		Kind: status.KindLost, Since: r.Lost.At,
		Text: "the record of the agent was lost: " + r.Lost.Reason + "; holds, denials and rollback targets of before are " +
			"unknown; confirm it with image-update-agent resume --all",
	}}
}
