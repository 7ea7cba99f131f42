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

// Keeper takes the lock of the fleet for this node, and gives it back.
type Keeper struct {
	Server    Locker // required where Lock covers a pod
	Lock      Lock   // as it is configured
	Hold      string // the name of the hold of what waits for the lock
	Record    *LockRecord
	Worked    *LockWorked
	Records   Saver                // of Record and Worked
	Heartbeat func() (stop func()) // says that the node waits for the server
	Log       *slog.Logger
	Now       func() time.Time
	Jitter    func() float64 // from [0,1)
}

// Saver saves the record of the node.
type Saver interface {
	Save(ctx context.Context) error
	// TrySave saves it for a pod manifest. If that fails, a later save repeats it.
	TrySave(ctx context.Context, file string)
}

// Take takes the lock for a pod manifest. The record says that it is asked for before the request is sent, and that it
// is held before anything is done under it. show is called after each of both. An error is a hold.
func (k *Keeper) Take(ctx context.Context, file string, show func()) error {
	l, before := k.Record, k.Record.State
	l.Ask(file, k.Lock, k.Now())
	if err := k.Records.Save(ctx); err != nil {
		return k.held(err)
	}
	show()
	answer, err := k.ask(ctx)
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
		k.Log.Info("fleet locked", "file", file, "group", k.Lock.Group)
	}
	if len(l.Others) > 0 {
		k.Log.Warn("lock server gave the lock to another node, too", "holders", holderText(l.Others))
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

// Unlock gives the lock back. A failed request is repeated later: the server knows who has the lock.
func (k *Keeper) Unlock(ctx context.Context) error {
	l := k.Record
	l.Release(k.Now())
	if err := k.Records.Save(ctx); err != nil {
		return err
	}
	if err := k.giveBack(ctx); err != nil {
		l.Fail(err, k.Now(), k.Jitter())
		k.Log.Warn("fleet not unlocked yet", "group", k.Lock.Group, "err", err)
		return err
	}
	if l.Given {
		*k.Worked = LockWorked{At: k.Now().UTC(), Server: k.Lock.Server, Group: k.Lock.Group, ID: k.Lock.ID}
	}
	*l = LockRecord{}
	k.Log.Info("fleet unlocked", "group", k.Lock.Group)
	return nil
}

// Forget forgets a lock that is configured no more: this node cannot give it back.
func (k *Keeper) Forget() {
	l := k.Record
	if l.State == "" || k.Server != nil && !l.isElsewhere(k.Lock) {
		return
	}
	k.Log.Warn("lock of the fleet is configured no more, and is not given back", "server", l.Server,
		"group", l.Group, "state", l.State)
	*l = LockRecord{}
}

// Try takes the lock and gives it back at once, if the node neither has it nor waits for it. The record says that
// it is to be given back before it is asked for. A lock that the id had already may be another machine's: it stays.
// One that worked already is not tried: some servers drain the node that gets it.
func (k *Keeper) Try(ctx context.Context) error {
	l := k.Record
	if l.State != "" {
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
		*l = LockRecord{} // it was not given
	default: // it may have been given
		err = errors.Join(err, k.Unlock(ctx))
	}
	if err != nil {
		return &TrialError{err}
	}
	return nil
}
