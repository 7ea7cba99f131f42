// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"time"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// Pacer limits the rate of requests. Its state is recorded, so that a restart does not
// lift the limits.
type Pacer interface {
	// Pace returns the state.
	Pace() Pace
	// Resume restores a recorded state. Waits that are there already and later stay.
	Resume(p Pace)
	// TryAgain lets each host be asked once that is left alone because it did not answer. What hosts asked for stays.
	TryAgain()
}

// Pace is the state of the limits for requests to registries.
type Pace struct {
	// Waits are the hosts that answered 429 or 503 with Retry-After, by host[:port].
	Waits  map[string]Wait `json:"waits,omitempty"`
	Budget Budget          `json:"budget,omitzero"`
}

// Wait is until when a host accepts no requests.
type Wait struct {
	Until  time.Time `json:"until"`
	Status int       `json:"status"` // the HTTP status that it came with
}

// Budget bounds the requests of this node to all registries. It refills evenly within an
// hour.
type Budget struct {
	PerHour   int       `json:"perHour"`   // 0: there is none
	Remaining int       `json:"remaining"` // requests, at At
	At        time.Time `json:"at,omitzero"`
}

// Recorder stores the record and the status.
type Recorder interface {
	// Load reads the record. An absent one is empty.
	Load(ctx context.Context) (Record, error)
	// Save writes it atomically.
	Save(ctx context.Context, r Record) error
	// Publish writes the status file, for readers without access to the socket.
	Publish(ctx context.Context, s status.Status) error
}
