// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// Keeper takes the fleet lock for this node and releases it.
type Keeper struct {
	Server    Locker // required if Lock covers a pod
	Lock      Lock   // the configuration
	Hold      string // name of the hold of pods that wait for the lock
	Record    *LockRecord
	Worked    *LockWorked
	Records   Saver                // saves Record and Worked
	Heartbeat func() (stop func()) // sends heartbeats while the node waits for the server
	Log       *slog.Logger
	Now       func() time.Time
	Jitter    func() float64 // random numbers from [0,1)
}

// Saver saves the node's record.
type Saver interface {
	Save(ctx context.Context) error
	// TrySave saves the record for a pod manifest. If that fails, a later save repeats it.
	TrySave(ctx context.Context, file string)
}

// Take takes the lock for a pod manifest. The record is saved before the request, and again with the granted lock
// before anything is done under it. show is called after each save. An error is a hold.
func (k *Keeper) Take(ctx context.Context, file string, show func()) error {
	l, before, wasUntaken := k.Record, k.Record.State, k.Record.isUntaken()
	l.Ask(file, k.Lock, k.Now())
	if err := k.Records.Save(ctx); err != nil {
		l.Unsent = wasUntaken
		return k.held(err)
	}
	show()
	answer, err := k.ask(ctx)
	refused, is := errors.AsType[*LockError](err)
	l.Unsent = wasUntaken && is && refused.Unsent
	switch {
	case err != nil && ctx.Err() != nil:
		return k.held(err)
	case err != nil:
		l.Fail(err, k.Now(), k.Jitter())
		k.Records.TrySave(ctx, file)
		return k.held(err)
	}
	l.Take(answer.Others(k.Lock.ID), k.Now())
	if err := k.Records.Save(ctx); err != nil {
		return k.held(err)
	}
	show()
	if before != LockHeld {
		k.Log.Info("fleet lock taken", "file", file, "lock", k.Lock.Name())
	}
	if len(l.Others) > 0 {
		k.Log.Warn("another node has the fleet lock, too", "holders", holderText(l.Others))
	}
	return nil
}

func (k *Keeper) held(err error) error { return &release.HoldError{Hold: k.Hold, Err: err} }

func (k *Keeper) ask(ctx context.Context) (LockAnswer, error) {
	defer k.Heartbeat()()
	return k.Server.Lock(ctx)
}

func (k *Keeper) giveBack(ctx context.Context) error {
	defer k.Heartbeat()()
	return k.Server.Unlock(ctx)
}

// Finish ends the use of the lock: it releases the lock, or forgets a request that cannot have reached the server.
func (k *Keeper) Finish(ctx context.Context) error {
	if k.Record.State != LockWaiting || !k.Record.Unsent {
		return k.Unlock(ctx)
	}
	k.Record.forget(*k.Record, k.Now())
	return nil
}

// Unlock releases the lock. A failed request is repeated later: the server knows the holder.
func (k *Keeper) Unlock(ctx context.Context) error {
	l, was := k.Record, *k.Record
	l.Release(k.Now())
	if err := k.Records.Save(ctx); err != nil {
		return err
	}
	err := k.giveBack(ctx)
	lost := errors.Is(err, ErrLost)
	switch {
	case err != nil && !lost:
		l.Fail(err, k.Now(), k.Jitter())
		k.Log.Warn("cannot release the fleet lock yet", "lock", k.Lock.Name(), "err", err)
		return err
	case lost && was.State == LockHeld: // a repeated release may find the lock of the next node
		k.Log.Warn("somebody else changed the fleet lock while this node held it", "lock", k.Lock.Name(), "err", err)
	case l.Given && !lost:
		*k.Worked = LockWorked{At: k.Now().UTC(), Target: k.Lock.Target, ID: k.Lock.ID}
	}
	l.forget(was, k.Now())
	k.Log.Info("fleet lock released", "lock", k.Lock.Name())
	return nil
}

// Forget drops a lock that is no longer configured: this node cannot release it.
func (k *Keeper) Forget() {
	l := k.Record
	if l.State == "" || k.Server != nil && l.Target == k.Lock.Target {
		return
	}
	if !l.State.IsIdle() {
		k.Log.Warn("fleet lock is no longer configured, and was not released", "server", l.Server,
			"group", l.Group, "lease", l.Lease, "state", l.State)
	}
	*l = LockRecord{}
}

// Try takes the lock and releases it at once, if the node neither holds it nor waits for it. The record says before the
// request that the lock must be released. A lock that this id held already may be another machine's: it stays. A lock
// that has already worked is not tried, because some servers drain the node that takes it.
func (k *Keeper) Try(ctx context.Context) error {
	l := k.Record
	if !l.State.IsIdle() {
		return k.held(fmt.Errorf("not tried: %s since %s", l.State, l.Since.Format(time.RFC3339)))
	}
	if !k.Worked.Since(k.Lock).IsZero() {
		return nil
	}
	l.Try(k.Lock, k.Now())
	if err := k.Records.Save(ctx); err != nil {
		*l = LockRecord{}
		return err
	}
	answer, err := k.ask(ctx)
	refused, _ := errors.AsType[*LockError](err)
	switch {
	case err == nil && answer.Retained:
		*l = LockRecord{}
		return ErrRetained
	case err == nil:
		l.Given = true
		err = k.Unlock(ctx)
	case refused != nil && refused.IsTaken():
		*l = LockRecord{}
		return k.held(err)
	case refused != nil && (refused.Unsent || refused.Status != 0 && refused.Err == nil):
		*l = LockRecord{} // not granted
	default: // perhaps granted
		err = errors.Join(err, k.Unlock(ctx))
	}
	if err != nil {
		return &TrialError{err}
	}
	return nil
}
