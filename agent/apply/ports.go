// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// ReleaseStager stages releases that a rollback needs and the node has lost.
type ReleaseStager interface {
	Stage(ctx context.Context, r release.Release) error
	// AwaitListed waits until CRI lists an image, and returns its id.
	AwaitListed(ctx context.Context, name string) (digest.Digest, error)
}

// Inhibitor delays a shutdown of the node.
type Inhibitor interface {
	// Inhibit delays a shutdown until release is called, as long as the node allows.
	Inhibit(ctx context.Context, why string) (release func(), err error)
}

// Meter counts applies and rollbacks.
type Meter interface {
	// Restarted counts a finished apply or rollback.
	Restarted(m Measured)
}

// Measured describes a finished apply or rollback.
type Measured struct {
	Back   bool // it was a rollback
	ByHand bool // a person requested the rollback; else it followed a failure
	Result status.Result
	// Took covers the check before the restart, the restart, and the health check with its settle time.
	Took time.Duration
	// Up is the time from the start of the restart until the pod ran the releases of the step, in steps of half a
	// second. Zero if the pod did not come up or was not restarted.
	Up time.Duration
}

// count counts the end of a restart. A restart that was interrupted or could not be observed continues in the next
// cycle, and is counted there.
func (a *attempt) count(ctx context.Context, how Measured, err error) {
	if a.Meter == nil || err != nil && ctx.Err() != nil || release.IsUnobserved(err) {
		return
	}
	switch {
	case release.IsWaiting(err):
		how.Result = status.ResultHeld
	case err != nil:
		how.Result = status.ResultFailed
	case how.Back:
		how.Result = status.ResultRolledBack
	default:
		how.Result = status.ResultApplied
	}
	how.Took = time.Since(a.began)
	if err == nil && !a.acted.IsZero() {
		how.Up = a.up.Sub(a.acted)
	}
	a.Meter.Restarted(how)
}
