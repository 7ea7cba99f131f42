// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"time"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// Inhibitor delays a shutdown of the node.
type Inhibitor interface {
	// Inhibit delays it until release is called, as long as the node allows.
	Inhibit(ctx context.Context, why string) (release func(), err error)
}

// RestartMeter counts applies and rollbacks.
type RestartMeter interface {
	// Restarted: an apply or a rollback has ended.
	Restarted(r Restart)
}

// Restart is how an apply or a rolling back has ended.
type Restart struct {
	Back   bool // it was a rolling back
	ByHand bool // a person asked for that; else it followed a failure
	Result status.Result
	// Took is all of it: the question before, the restart, the proof with its settle
	// time.
	Took time.Duration
	// Up is from the beginning of the restart until the pod was first seen as it
	// should be and stayed so; it is looked at twice a second. Zero where it did not
	// come up, or was not restarted.
	Up time.Duration
}
