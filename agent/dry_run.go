// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// dryRun returns the outcomes that an apply would begin with, and changes nothing. Pods that it would restart are the
// first, in its order, with the result status.ResultWouldApply. Only a real apply asks for the lock of the fleet, the
// health of the control plane and the digests of the tags.
func (r requests) dryRun(ctx context.Context, req ApplyRequest) ([]status.Outcome, error) {
	record := &r.agent.records.Record
	before := record.Denials()
	defer record.Deny(before, "")
	if req.Retry {
		pods, err := r.pick(ctx, ApplyRequest{Which: req.Which})
		if err != nil {
			return nil, err
		}
		for _, p := range pods {
			record.Allow(p.File, p.Releases())
		}
	}
	pods, err := r.pick(ctx, req)
	if err != nil {
		return nil, err
	}
	outcomes, undo := make([]status.Outcome, 0, len(pods)), []func(){}
	for _, p := range plan.HoldHalves(pods) {
		o := outcomeOf(p)
		if o.Result == "" || plan.IsUnstaged(p) {
			o.Result, o.Reason, o.Edits = status.ResultWouldApply, "", p.Edits
			if plan.IsUnstaged(p) {
				o.Reason = "pulls its images first"
			}
			undo = append(undo, record.Approved.Undo(p.File))
			record.Approved.Set(p.File, p.Approval(record.Approved[p.File], r.agent.Now()))
		}
		outcomes = append(outcomes, o)
	}
	approved, err := r.agent.plan(ctx, r.loop, source.PollNone)
	for _, restore := range undo {
		restore()
	}
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(outcomes, func(x, y status.Outcome) int { return turnOf(approved, x) - turnOf(approved, y) })
	return outcomes, nil
}

// turnOf returns the place of an outcome among the restarts of a plan. Pods that are staged first come behind them, and
// then those that an apply would not restart.
func turnOf(p plan.Plan, o status.Outcome) int {
	n := slices.IndexFunc(p.Steps, func(s plan.Step) bool { return s.Do == plan.StepApply && s.File == o.PodManifest })
	switch {
	case o.Result != status.ResultWouldApply:
		return len(p.Steps) + 1
	case n < 0:
		return len(p.Steps)
	default:
		return n
	}
}
