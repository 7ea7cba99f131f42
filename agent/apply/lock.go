// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/quorum"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// FleetLock is a lock that the nodes of a fleet share. It has no time-out: who has it keeps it until Unlock.
type FleetLock interface {
	// Lock takes the lock for this node, or keeps it. After an error the node may have it nevertheless.
	Lock(ctx context.Context) (release.LockAnswer, error)
	// Unlock gives it back, if the node has it.
	Unlock(ctx context.Context) error
}

// fleet is the fleet of a restart.
type fleet struct{ *restart }

// enter makes sure that the fleet can spare a pod: the other members of the control plane are healthy, and the node has
// the lock. The members are asked again under the lock: another node may have had it meanwhile.
func (r fleet) enter(ctx context.Context) error {
	isMember := follow.IsControlPlane(r.step.Apply.Pod)
	if err := r.checkQuorum(ctx, isMember); err != nil {
		return err
	}
	if !r.Policy.Lock.Covers(isMember) {
		return nil
	}
	if err := r.lock(ctx); err != nil {
		return err
	}
	return r.checkQuorum(ctx, isMember)
}

// lock takes the lock of the fleet. The record says that it is asked for before the request is sent, and that it is
// held before anything is done under it.
func (r fleet) lock(ctx context.Context) error {
	l := &r.Records.Record.Lock
	before := l.State
	l.Ask(r.step.File, r.Policy.Lock, r.Now())
	if err := r.Records.Save(ctx); err != nil {
		return lockHold(err)
	}
	r.showLock()
	stop := r.Progress.Heartbeat()
	answer, err := r.FleetLock.Lock(ctx)
	stop()
	switch {
	case err != nil && ctx.Err() != nil:
		return lockHold(err)
	case err != nil:
		l.Fail(err, r.Now(), r.Jitter())
		r.Records.TrySave(ctx, r.step.File)
		return lockHold(err)
	}
	l.Take(answer.Others(r.Policy.Lock.ID), r.Now())
	if err := r.Records.Save(ctx); err != nil {
		return lockHold(err)
	}
	r.showLock()
	if before != status.LockHeld {
		r.Log.Info("fleet locked", "file", r.step.File, "group", r.Policy.Lock.Group)
	}
	if len(l.Others) > 0 {
		r.Log.Warn("lock server gave the lock to another node, too", "holders", release.HolderText(l.Others))
	}
	return nil
}

// showLock shows the lock in the status before the cycle ends.
func (r fleet) showLock() {
	r.Progress.Report(status.Progress{
		Reference: r.step.Apply.Pod, Phase: status.PhaseLocking, Lock: r.Records.Record.Lock.Status(r.Policy.Lock, false),
	})
}

func lockHold(err error) error { return &release.HoldError{Hold: status.HoldLock, Err: err} }

// Fleet gives the lock back that restarts have taken.
type Fleet struct{ *Restarter }

// Unlock gives the lock of the fleet back. A failed request is repeated later: the server knows who has the lock.
func (r Fleet) Unlock(ctx context.Context) error {
	l := &r.Records.Record.Lock
	l.Release(r.Now())
	if err := r.Records.Save(ctx); err != nil {
		return err
	}
	stop := r.Progress.Heartbeat()
	err := r.FleetLock.Unlock(ctx)
	stop()
	if err != nil {
		l.Fail(err, r.Now(), r.Jitter())
		r.Log.Warn("fleet not unlocked yet", "group", r.Policy.Lock.Group, "err", err)
		return err
	}
	*l = record.Lock{}
	r.Log.Info("fleet unlocked", "group", r.Policy.Lock.Group)
	return nil
}

// Quorum observes the control plane of the node's cluster.
type Quorum interface {
	// Observe asks all of its members. files are the pod manifests of this node.
	Observe(ctx context.Context, files []node.PodFile) quorum.Observation
}

// checkQuorum returns a hold if another member of the control plane is not healthy.
func (r fleet) checkQuorum(ctx context.Context, isMember bool) error {
	if !isMember || r.Quorum == nil {
		return nil
	}
	files, err := r.Files.PodManifests(ctx)
	if err != nil {
		return fmt.Errorf("pod manifests: %w", err)
	}
	stop := r.Progress.Heartbeat()
	seen := r.Quorum.Observe(ctx, files)
	stop()
	if against := quorum.Against(seen, r.step.Apply.Pod == follow.PodAPIServer); against != "" {
		return &release.HoldError{Hold: status.HoldQuorum, Err: errors.New(against)}
	}
	return nil
}
