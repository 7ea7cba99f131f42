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

// ErrNoLock is returned if no fleet lock is configured.
var ErrNoLock = errors.New("no fleet lock is configured (apply.lock.lease or url)")

// unlock releases the fleet lock as soon as nothing needs it. Each cycle ends with it, so a crash or an unreachable
// server only delays the release.
func (c *cycle) unlock(ctx context.Context, use record.InUse) {
	c.lock.Forget()
	if c.agent.records.Record.IsLockDue(use, c.agent.Now()) {
		_ = c.lock.Finish(ctx) // logged already, and kept in the record
	}
}

// ReleaseLock releases the fleet lock for a person, even if a failed pod keeps it. It returns the status, and ErrNoLock
// or the server's error. It fails during an apply.
func (l *Loop) ReleaseLock(ctx context.Context, onProgress func(status.Progress)) (status.Status, error) {
	return l.useLock(ctx, "unlock", onProgress, (*fleet.Keeper).Unlock)
}

// TryLock takes the fleet lock and releases it at once, unless the node has it or waits for it. It returns the same as
// ReleaseLock. It does not try a lock that has already worked.
func (l *Loop) TryLock(ctx context.Context, onProgress func(status.Progress)) (status.Status, error) {
	return l.useLock(ctx, "try the lock", onProgress, (*fleet.Keeper).Try)
}

// useLock runs a person's request that uses the fleet lock.
func (l *Loop) useLock(
	ctx context.Context, verb string, onProgress func(status.Progress), do func(*fleet.Keeper, context.Context) error,
) (status.Status, error) {
	if s := l.Status(); s.State == status.StateApplying && s.HasReason(status.KindApplying) {
		return s, fmt.Errorf("%w: %s", release.ErrHeld, s.Reason)
	}
	r := newRequest(ctx, verb, onProgress)
	r.do = func(ctx context.Context) (d cycleResult, err error) {
		if l.agent.FleetLock == nil {
			return d, ErrNoLock
		}
		c, err := l.agent.begin(ctx, r)
		if err == nil {
			err = do(c.lock, ctx)
		}
		d, errCycle := l.agent.cycle(ctx, r)
		return d, errors.Join(err, errCycle)
	}
	err := l.request(ctx, r)
	return l.Status(), err
}
