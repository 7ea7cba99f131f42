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
	// Resume restores a recorded state. Existing later waits stay.
	Resume(p Pace)
	// TryAgain allows one request to each host that waits because it did not answer, or that asked to wait.
	TryAgain()
}

// Pace is the state of the limits for requests to registries.
type Pace struct {
	// Waits are the hosts that answered 429 or 503 with Retry-After, by host[:port].
	Waits  map[string]Wait `json:"waits,omitempty"`
	Budget Budget          `json:"budget,omitzero"`
}

// Wait is the end of a host's Retry-After.
type Wait struct {
	Until  time.Time `json:"until"`
	Status int       `json:"status"` // the HTTP status of the answer
}

// Budget limits the requests of this node to all registries. It refills evenly within an hour.
type Budget struct {
	PerHour   int       `json:"perHour"`   // 0: no limit
	Remaining int       `json:"remaining"` // requests, at At
	At        time.Time `json:"at,omitzero"`
}

// Recorder stores the record and the status.
type Recorder interface {
	// Load reads the record. A missing one is empty.
	Load(ctx context.Context) (Record, error)
	// Save writes the record atomically.
	Save(ctx context.Context, r Record) error
	// Publish writes the status file, for readers without access to the socket.
	Publish(ctx context.Context, s status.Status) error
}
