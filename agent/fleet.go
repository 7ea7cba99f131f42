// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// ErrNoLock is returned where no lock of the fleet is configured.
var ErrNoLock = errors.New("no lock of the fleet is configured (apply.lock.url)")

// unlock gives the lock of the fleet back as soon as nothing needs it. It ends each cycle, so that a crash or a server
// that was away changes nothing but the time.
func (c *cycle) unlock(ctx context.Context, use record.InUse) {
	c.lock.Forget()
	if c.agent.records.Record.IsLockDue(use, c.agent.Now()) {
		_ = c.lock.Unlock(ctx) // it was logged, and the record has it
	}
}

// ReleaseLock gives the lock of the fleet back for a person, also one that is kept because a pod failed. It returns the
// status, and ErrNoLock or the error of the server. During an apply it is refused.
func (l *Loop) ReleaseLock(ctx context.Context, onProgress func(status.Progress)) (status.Status, error) {
	return l.useLock(ctx, "unlock", onProgress, (*fleet.Keeper).Unlock)
}

// TryLock takes the lock of the fleet and gives it back at once, unless the node has it or waits for it. It returns
// what ReleaseLock does. A lock that worked already is not tried.
func (l *Loop) TryLock(ctx context.Context, onProgress func(status.Progress)) (status.Status, error) {
	return l.useLock(ctx, "try the lock", onProgress, (*fleet.Keeper).Try)
}

// useLock does something with the lock of the fleet for a person.
func (l *Loop) useLock(
	ctx context.Context, verb string, onProgress func(status.Progress), do func(*fleet.Keeper, context.Context) error,
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
	ctx context.Context, loop shared, do func(*fleet.Keeper, context.Context) error,
) (cycleResult, error) {
	if a.FleetLock == nil {
		return cycleResult{}, ErrNoLock
	}
	c, err := a.begin(ctx, loop, purpose{person: true})
	if err == nil {
		err = do(c.lock, ctx)
	}
	d, errCycle := a.cycle(ctx, loop, purpose{person: true})
	return d, errors.Join(err, errCycle)
}
