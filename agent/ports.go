// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/stage"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Announcer announces updates to the admin's UI.
type Announcer interface {
	// Announce sets the grain if it changed. It returns ErrHeld while another update
	// owns the node.
	Announce(ctx context.Context, a status.Announcement) error
	// Busy returns the grain with which another operation owns the node; "" if there is none.
	Busy(ctx context.Context) (grain string, err error)
}

// Preconditions check whether the node allows a restart of pods.
type Preconditions interface {
	// Holds returns the reasons against a restart. A failed check is a hold as well.
	Holds(ctx context.Context) []status.Hold
}

// Meter counts events. Calls may be concurrent and must not block. One Meter serves all
// agents of a daemon, so that its counts survive a reload.
type Meter interface {
	source.FailureMeter
	stage.StagingMeter
	apply.Meter
	CycleDone()
}
