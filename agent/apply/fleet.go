// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"strings"

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

// Reboots knows which nodes of the cluster another program reboots.
type Reboots interface {
	// Nodes returns the nodes that it reboots now. An error is a hold, too.
	Nodes(ctx context.Context) ([]string, error)
}

// enterFleet makes sure that the fleet can spare a pod: no node is rebooted, the other members of the control plane are
// healthy, and the node holds the lock. The first two are checked again under the lock: another node may have held it
// meanwhile.
func (a *attempt) enterFleet(ctx context.Context) error {
	isMember := follow.IsControlPlane(a.step.Apply.Role)
	if err := a.checkOthers(ctx, isMember); err != nil {
		return err
	}
	if !a.Policy.Lock.Covers(isMember) {
		return nil
	}
	if err := a.Lock.Take(ctx, a.step.File, a.showLock); err != nil {
		return err
	}
	return a.checkOthers(ctx, isMember)
}

func (a *attempt) checkOthers(ctx context.Context, isMember bool) error {
	if err := a.checkReboots(ctx); err != nil {
		return err
	}
	return a.checkQuorum(ctx, isMember)
}

// checkReboots returns a hold if another program reboots a node, or may reboot one.
func (a *attempt) checkReboots(ctx context.Context) error {
	if a.Reboots == nil {
		return nil
	}
	stop := a.Progress.Heartbeat()
	nodes, err := a.Reboots.Nodes(ctx)
	stop()
	if err == nil && len(nodes) > 0 {
		err = errors.New("kured reboots " + strings.Join(nodes, ", "))
	}
	if err != nil {
		return &release.HoldError{Hold: status.HoldReboot, Err: err}
	}
	return nil
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
