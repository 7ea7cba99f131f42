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
	// Inhibit delays it until release is called, as long as the node allows.
	Inhibit(ctx context.Context, why string) (release func(), err error)
}

// Meter counts applies and rollbacks.
type Meter interface {
	// Restarted counts an apply or a rollback that has ended.
	Restarted(m Measured)
}

// Measured is how an apply or a rollback has ended.
type Measured struct {
	Back   bool // it was a rollback
	ByHand bool // a person requested the rollback; else it followed a failure
	Result status.Result
	// Took covers the check before the restart, the restart, and the proof with its settle time.
	Took time.Duration
	// Up is the time from the beginning of the restart until the pod ran what the step names, in
	// steps of half a second. Zero where the pod did not come up or was not restarted.
	Up time.Duration
}

// count counts how the restart ended. One that was interrupted or could not be observed
// continues in the next cycle, and is counted there.
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
