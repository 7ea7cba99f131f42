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
	rec := &c.records.Record
	if c.FleetLock == nil && rec.Lock.State != "" || rec.Lock.IsElsewhere(c.Policy.Lock) {
		c.log.Warn("lock of the fleet is configured no more, and is not given back", "server", rec.Lock.Server,
			"group", rec.Lock.Group, "state", rec.Lock.State)
		rec.Lock = record.Lock{}
	}
	if rec.IsLockDue(use, c.Now()) {
		_ = apply.Fleet{Restarter: c.restarter}.Unlock(ctx) // it was logged, and the record has it
	}
}

// ReleaseLock gives the lock of the fleet back for a person, also one that is kept because a pod failed. It returns the
// status, and ErrNoLock or the error of the server. During an apply it is refused.
func (l *Loop) ReleaseLock(ctx context.Context, onProgress func(status.Progress)) (status.Status, error) {
	if s := l.Status(); s.State == status.StateApplying && s.HasReason(status.KindApplying) {
		return s, fmt.Errorf("%w: %s", release.ErrHeld, s.Reason)
	}
	err := l.person(ctx, "unlock", "", onProgress, func(ctx context.Context) (cycleResult, error) {
		return l.agent.releaseLock(ctx)
	})
	return l.Status(), err
}

func (a *Agent) releaseLock(ctx context.Context) (cycleResult, error) {
	if a.FleetLock == nil {
		return cycleResult{}, ErrNoLock
	}
	c, err := a.begin(ctx, purpose{person: true})
	if err == nil {
		err = apply.Fleet{Restarter: c.restarter}.Unlock(ctx)
	}
	d, errCycle := a.cycle(ctx, purpose{person: true})
	return d, errors.Join(err, errCycle)
}
