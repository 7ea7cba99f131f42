// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"time"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// Pacer is how fast the hosts may be asked: what must survive a restart, so
// that one never becomes a way around it.
type Pacer interface {
	// Pace is how it stands now.
	Pace() Pace
	// Resume takes up what was kept. Waits that are there already and later stay.
	Resume(p Pace)
}

// Pace is what hosts and the budget of requests leave for later.
type Pace struct {
	// Waits are the hosts that asked to be left alone (429 or 503 with
	// Retry-After), by host[:port].
	Waits map[string]Wait `json:"waits,omitempty"`
	// Budget is what is left to ask with.
	Budget Budget `json:"budget,omitzero"`
}

// Wait is a host's wish to be left alone.
type Wait struct {
	Until  time.Time `json:"until"`
	Status int       `json:"status"` // the HTTP status that it came with
}

// Budget bounds the requests of this node to all registries. It refills evenly
// over the hour.
type Budget struct {
	PerHour int       `json:"perHour"` // 0: there is none
	Left    int       `json:"left"`    // requests, at the time At
	At      time.Time `json:"at,omitzero"`
}

// Recorder keeps what cannot be observed again.
type Recorder interface {
	// Load reads the record; an absent one is an empty record.
	Load(ctx context.Context) (Record, error)
	// Save writes it atomically.
	Save(ctx context.Context, r Record) error
	// Publish writes the status for readers that cannot reach the daemon.
	Publish(ctx context.Context, s status.Status) error
}
