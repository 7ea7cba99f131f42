// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// Announcer tells the admin's UI.
type Announcer interface {
	// Announce sets the grain, writing only on change. ErrHeld while another
	// update owns the node.
	Announce(ctx context.Context, a status.Announcement) error
	// Busy names the grain by which a foreign operation owns the node now, as in
	// update_in_progress; empty for none.
	Busy(ctx context.Context) (grain string, err error)
}

// Preconditions are what the rest of the node has against restarting a pod now.
type Preconditions interface {
	// Holds lists it; none: nothing. What cannot be found out is itself a hold,
	// unless the node has no such thing.
	Holds(ctx context.Context) []status.Hold
}
