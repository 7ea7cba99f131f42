// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// Quorum observes the control plane of the node's cluster.
type Quorum interface {
	// Observe queries all members. files are the pod manifests of this node.
	Observe(ctx context.Context, files []node.PodFile) fleet.Observation
}

// enterFleet makes sure that the fleet can spare a pod: the other members of the control plane are healthy, and the
// node holds the lock. They are checked again under the lock: another node may have held it meanwhile.
func (a *attempt) enterFleet(ctx context.Context) error {
	isMember := follow.IsControlPlane(a.step.Apply.Role)
	if err := a.checkQuorum(ctx, isMember); err != nil {
		return err
	}
	if !a.Policy.Lock.Covers(isMember) {
		return nil
	}
	if err := a.Lock.Take(ctx, a.step.File, a.showLock); err != nil {
		return err
	}
	return a.checkQuorum(ctx, isMember)
}

// showLock shows the lock in the status before the cycle ends.
func (a *attempt) showLock() {
	a.Progress.Report(status.Progress{
		Reference: a.step.Apply.Pod, Phase: status.PhaseLocking, PodManifest: a.step.File,
		Lock: a.Records.Record.LockStatus(a.Policy.Lock),
	})
}

// checkQuorum returns a hold if another member of the control plane is not healthy.
func (a *attempt) checkQuorum(ctx context.Context, isMember bool) error {
	if !isMember || a.Quorum == nil {
		return nil
	}
	files, err := a.Files.PodManifests(ctx)
	if err != nil {
		return fmt.Errorf("pod manifests: %w", err)
	}
	stop := a.Progress.Heartbeat()
	seen := a.Quorum.Observe(ctx, files)
	stop()
	if against := fleet.Against(seen, a.step.Apply.Role == manifests.RoleAPIServer); against != "" {
		return &release.HoldError{Hold: status.HoldQuorum, Err: errors.New(against)}
	}
	return nil
}
