// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// ErrNoLock is returned where no lock of the fleet is configured.
var ErrNoLock = errors.New("no lock of the fleet is configured (apply.lock.url)")

// unlock gives the lock of the fleet back as soon as nothing needs it. It ends each cycle, so that a crash or a server
// that was away changes nothing but the time.
func (c *cycle) unlock(ctx context.Context, use record.InUse) {
	rec := &c.agent.records.Record
	if c.agent.FleetLock == nil && rec.Lock.State != "" || rec.Lock.IsElsewhere(c.agent.Policy.Lock) {
		c.log.Warn("lock of the fleet is configured no more, and is not given back", "server", rec.Lock.Server,
			"group", rec.Lock.Group, "state", rec.Lock.State)
		rec.Lock = record.Lock{}
	}
	if rec.IsLockDue(use, c.agent.Now()) {
		_ = c.executor.Unlock(ctx) // it was logged, and the record has it
	}
}

// ReleaseLock gives the lock of the fleet back for a person, also one that is kept because a pod failed. It returns the
// status, and ErrNoLock or the error of the server. During an apply it is refused.
func (l *Loop) ReleaseLock(ctx context.Context, onProgress func(status.Progress)) (status.Status, error) {
	return l.useLock(ctx, "unlock", onProgress, (*apply.Executor).Unlock)
}

// TryLock takes the lock of the fleet and gives it back at once, unless the node has it or waits for it. It returns
// what ReleaseLock does. A lock that worked already is not tried: some servers drain the node that gets it.
func (l *Loop) TryLock(ctx context.Context, onProgress func(status.Progress)) (status.Status, error) {
	return l.useLock(ctx, "try the lock", onProgress, func(x *apply.Executor, ctx context.Context) error {
		if !x.Records.Record.LockWorked.Since(x.Policy.Lock).IsZero() && x.Records.Record.Lock.State == "" {
			return nil
		}
		return x.TryLock(ctx)
	})
}

// useLock does something with the lock of the fleet for a person.
func (l *Loop) useLock(
	ctx context.Context, verb string, onProgress func(status.Progress), do func(*apply.Executor, context.Context) error,
) (status.Status, error) {
	if s := l.Status(); s.State == status.StateApplying && s.HasReason(status.KindApplying) {
		return s, fmt.Errorf("%w: %s", release.ErrHeld, s.Reason)
	}
	err := l.person(ctx, verb, doing{}, onProgress, nil, func(ctx context.Context) (cycleResult, error) {
		return l.agent.useLock(ctx, l.shared(), do)
	})
	return l.Status(), err
}

func (a *Agent) useLock(
	ctx context.Context, loop shared, do func(*apply.Executor, context.Context) error,
) (cycleResult, error) {
	if a.FleetLock == nil {
		return cycleResult{}, ErrNoLock
	}
	c, err := a.begin(ctx, loop, purpose{person: true})
	if err == nil {
		err = do(c.executor, ctx)
	}
	d, errCycle := a.cycle(ctx, loop, purpose{person: true})
	return d, errors.Join(err, errCycle)
}
