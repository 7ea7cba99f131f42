// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// BeginSet makes sure that all pods of a set can be restarted, before the first restart: kubelet will start the staged
// releases, the fleet can spare the pods, and the caller is there. It records their previous releases. steps are the
// applies of all pods of the set.
func (x *Executor) BeginSet(ctx context.Context, set string, steps []plan.Step) error {
	for _, s := range steps {
		a := x.newAttempt(s)
		if err := a.prepare(ctx, a.preflight); err != nil {
			return of(s, err)
		}
	}
	for _, s := range steps {
		a := x.newAttempt(s)
		if err := a.prepare(ctx, a.enterFleet); err != nil {
			return of(s, err)
		}
	}
	for _, s := range steps {
		if err := x.newAttempt(s).begins(); err != nil {
			return err
		}
	}
	rec := &x.Records.Record
	begun := plan.NewBegunSet(steps, *rec)
	begun.At, begun.By = x.Now().UTC(), x.newAttempt(steps[0]).approver()
	rec.Sets.Set(set, begun)
	if err := x.Records.Save(ctx); err != nil {
		rec.Sets.Delete(set)
		return &release.HoldError{Hold: status.HoldSet, Err: err}
	}
	return nil
}

// of adds the pod manifest to an error that stops the other pods of its set.
func of(s plan.Step, err error) error {
	if errors.Is(err, errCanceled) {
		return err
	}
	return fmt.Errorf("%s: %w", s.File, err)
}
