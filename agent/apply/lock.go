// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/quorum"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// FleetLock is a lock that the nodes of a fleet share. It has no time-out: who has it keeps it until Unlock.
type FleetLock interface {
	// Lock takes the lock for this node, or keeps it. After an error the node may have it nevertheless.
	Lock(ctx context.Context) (release.LockAnswer, error)
	// Unlock gives it back, if the node has it.
	Unlock(ctx context.Context) error
}

// enterFleet makes sure that the fleet can spare a pod: the other members of the control plane are healthy, and the
// node has the lock. The members are asked again under the lock: another node may have had it meanwhile.
func (a *attempt) enterFleet(ctx context.Context) error {
	isMember := follow.IsControlPlane(a.step.Apply.Role)
	if err := a.checkQuorum(ctx, isMember); err != nil {
		return err
	}
	if !a.Policy.Lock.Covers(isMember) {
		return nil
	}
	if err := a.takeLock(ctx); err != nil {
		return err
	}
	return a.checkQuorum(ctx, isMember)
}

// takeLock takes the lock of the fleet. The record says that it is asked for before the request is sent, and that it is
// held before anything is done under it.
func (a *attempt) takeLock(ctx context.Context) error {
	l := &a.Records.Record.Lock
	before := l.State
	l.Ask(a.step.File, a.Policy.Lock, a.Now())
	if err := a.Records.Save(ctx); err != nil {
		return lockHold(err)
	}
	a.showLock()
	stop := a.Progress.Heartbeat()
	answer, err := a.FleetLock.Lock(ctx)
	stop()
	switch {
	case err != nil && ctx.Err() != nil:
		return lockHold(err)
	case err != nil:
		l.Fail(err, a.Now(), a.Jitter())
		a.Records.TrySave(ctx, a.step.File)
		return lockHold(err)
	}
	l.Take(answer.Others(a.Policy.Lock.ID), a.Now())
	if err := a.Records.Save(ctx); err != nil {
		return lockHold(err)
	}
	a.showLock()
	if before != status.LockHeld {
		a.Log.Info("fleet locked", "file", a.step.File, "group", a.Policy.Lock.Group)
	}
	if len(l.Others) > 0 {
		a.Log.Warn("lock server gave the lock to another node, too", "holders", release.HolderText(l.Others))
	}
	return nil
}

// showLock shows the lock in the status before the cycle ends.
func (a *attempt) showLock() {
	a.Progress.Report(status.Progress{
		Reference: a.step.Apply.Pod, Phase: status.PhaseLocking, Lock: a.Records.Record.LockStatus(a.Policy.Lock),
	})
}

func lockHold(err error) error { return &release.HoldError{Hold: status.HoldLock, Err: err} }

// Unlock gives the lock of the fleet back. A failed request is repeated later: the server knows who has the lock.
func (x *Executor) Unlock(ctx context.Context) error {
	l := &x.Records.Record.Lock
	l.Release(x.Now())
	if err := x.Records.Save(ctx); err != nil {
		return err
	}
	stop := x.Progress.Heartbeat()
	err := x.FleetLock.Unlock(ctx)
	stop()
	if err != nil {
		l.Fail(err, x.Now(), x.Jitter())
		x.Log.Warn("fleet not unlocked yet", "group", x.Policy.Lock.Group, "err", err)
		return err
	}
	if l.Given {
		at := x.Policy.Lock
		x.Records.Record.LockWorked = record.LockWorked{At: x.Now().UTC(), Server: at.Server, Group: at.Group, ID: at.ID}
	}
	*l = record.Lock{}
	x.Log.Info("fleet unlocked", "group", x.Policy.Lock.Group)
	return nil
}

// ErrRetained: the lock server says that this node's id has the lock already, and this node did not take it.
var ErrRetained = errors.New(
	"the lock server says that this node's id has the lock already, and this node did not take it")

// TryLock takes the lock and gives it back at once, if the node neither has it nor waits for it. The record says that
// it is to be given back before it is asked for. A lock that the id had already may be another machine's: it stays.
func (x *Executor) TryLock(ctx context.Context) error {
	l := &x.Records.Record.Lock
	if l.State != "" {
		return lockHold(fmt.Errorf("not tried: %s since %s", l.State, l.Since.Format(time.RFC3339)))
	}
	l.Try(x.Policy.Lock, x.Now())
	if err := x.Records.Save(ctx); err != nil {
		*l = record.Lock{}
		return err
	}
	stop := x.Progress.Heartbeat()
	answer, err := x.FleetLock.Lock(ctx)
	stop()
	refused, _ := errors.AsType[*release.LockError](err)
	switch {
	case err == nil && answer.Retained:
		*l = record.Lock{}
		return ErrRetained
	case err == nil:
		l.Given = true
		err = x.Unlock(ctx)
	case refused != nil && refused.IsTaken():
		*l = record.Lock{}
		return lockHold(err)
	case refused != nil && (refused.Unsent || refused.Status != 0 && refused.Err == nil):
		*l = record.Lock{} // it was not given
	default: // it may have been given
		err = errors.Join(err, x.Unlock(ctx))
	}
	if err != nil {
		return &TrialError{err}
	}
	return nil
}

// TrialError is a lock that does not work. Unlike one that others have it is nothing to wait for.
type TrialError struct{ Err error }

func (e *TrialError) Error() string { return e.Err.Error() }

// Quorum observes the control plane of the node's cluster.
type Quorum interface {
	// Observe asks all of its members. files are the pod manifests of this node.
	Observe(ctx context.Context, files []node.PodFile) quorum.Observation
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
	if against := quorum.Against(seen, a.step.Apply.Role == manifests.RoleAPIServer); against != "" {
		return &release.HoldError{Hold: status.HoldQuorum, Err: errors.New(against)}
	}
	return nil
}
