// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Rollback returns the pods of the selected images to their last known good releases. It denies the releases that they
// ran.
func (a *Agent) Rollback(ctx context.Context, which plan.Which) ([]status.Outcome, status.Status, error) {
	outcomes, d, err := requests{agent: a, by: status.ActorOf(ctx)}.rollback(ctx, which)
	return outcomes, d.status, err
}

func (r requests) rollback(ctx context.Context, which plan.Which) ([]status.Outcome, cycleResult, error) {
	if r.caller.hasLeft() { // a resumed request
		return nil, cycleResult{}, errors.Join(r.agent.takeBack(ctx, r.caller), errLeft)
	}
	pods, err := r.pick(ctx, ApplyRequest{Which: which})
	if err != nil {
		return nil, cycleResult{}, err
	}
	outcomes, err := r.requestRollback(ctx, pods, which)
	if err != nil || !slices.ContainsFunc(outcomes, isOpen) {
		return outcomes, cycleResult{}, err
	}
	for _, o := range outcomes {
		if isOpen(o) {
			r.announceChange(status.Progress{
				Reference: o.PodManifest, PodManifest: o.PodManifest, Phase: status.PhaseReturning, Edits: o.Edits,
			})
		}
	}
	d, err := r.agent.cycle(ctx, r.loop, purpose{person: true, caller: r.caller})
	if ctx.Err() == nil {
		err = errors.Join(err, r.agent.takeBack(ctx, r.caller))
	}
	for n := range outcomes {
		if isOpen(outcomes[n]) {
			r.rollbackOutcome(&outcomes[n], d.results)
		}
	}
	return outcomes, d, err
}

func isOpen(o status.Outcome) bool { return o.Result == "" }

// requestRollback records the rollback targets. The outcomes of pods with a target have no result yet.
func (r requests) requestRollback(
	ctx context.Context, pods []plan.PodPlan, which plan.Which,
) ([]status.Outcome, error) {
	c, err := r.agent.begin(ctx, r.loop, purpose{})
	if err != nil {
		return nil, err
	}
	inv, err := c.observe(ctx)
	if err != nil {
		return nil, err
	}
	if inv.Busy != "" {
		inv.RestartHolds = []status.Hold{{Name: status.HoldBusy, Reason: inv.Busy, Grain: inv.BusyGrain}}
	} else if r.agent.Preconditions != nil {
		inv.RestartHolds = r.agent.Preconditions.Holds(ctx)
	}
	var outcomes []status.Outcome
	for _, rb := range plan.Rollbacks(inv, r.agent.records.Record, r.agent.Policy, r.agent.Now(), pods, which) {
		o := status.Outcome{PodManifest: rb.Pod.File, Change: status.ChangeRollback}
		switch {
		case rb.Err != nil:
			o.SetError(rb.Err)
			if rb.Pod.Err == nil {
				o.Result = status.ResultHeld
			}
		case rb.To == nil:
			o.Result = status.ResultNothing
		case len(inv.RestartHolds) > 0:
			against := inv.RestartHolds[0]
			o.Result, o.Hold, o.Reason = status.ResultHeld, against.Name, against.Name+": "+against.Reason
		default:
			o.Edits = rb.Edits
			r.caller.approves(o, r.undoRollback(rb.Pod), rb.Together...)
			r.denyRunning(rb.Pod, *rb.To)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, r.agent.records.Commit(ctx)
}

// undoRollback returns a function that restores what denyRunning changes.
func (r requests) undoRollback(p plan.PodPlan) func() {
	rec := &r.agent.records.Record
	undo := []func(){rec.Approved.Undo(p.File), rec.Overrides.Undo(p.File)}
	for _, i := range p.Images {
		undo = append(undo, rec.Denied.Undo(release.Key(i.Want.Ask.Repository, i.Running.Digest)))
	}
	return func() {
		for _, f := range undo {
			f()
		}
	}
}

// denyRunning records the override and denies what it replaces.
func (r requests) denyRunning(p plan.PodPlan, o record.Override) {
	replaced := map[string]string{}
	for _, i := range p.Images {
		place := node.PlaceOf(i.Want.Image)
		at, ok := o.Images[place]
		if ok && i.Running.Digest != "" && at.Digest != i.Running.Digest {
			r.agent.records.Record.Denied.Set(release.Key(i.Want.Ask.Repository, i.Running.Digest), record.Denial{
				At: r.agent.Now().UTC(), Name: i.Running.Tag, PodManifest: p.File, Reason: record.ByHand, ByHand: true,
				Created: r.agent.records.Record.Releases[release.Key(i.Want.Ask.Repository, i.Running.Digest)].Created,
			})
			replaced[place] = cmp.Or(i.Running.Tag, i.Running.Digest.String())
		}
	}
	o.By = r.by
	r.agent.records.Record.Approved.Delete(p.File)
	r.agent.records.Record.Overrides.Set(p.File, o.Replacing(replaced))
	r.agent.Log.Info("rollback requested", "file", p.File, "to", o.Releases(), "by", r.by.String())
}

// rollbackOutcome sets the outcome of a rollback from the results of its cycle.
func (r requests) rollbackOutcome(o *status.Outcome, all results) {
	override, err := r.agent.records.Record.Overrides[o.PodManifest], all.err(o.PodManifest)
	switch {
	case err != nil:
		o.SetError(err)
	case r.caller.isCanceled(o.PodManifest):
		o.Result, o.Reason = status.ResultCanceled, reasonCanceled
	case override.Pending:
		o.Result, o.Reason = status.ResultHeld, "interrupted: continues at the next start of the daemon"
	default:
		o.Result, o.Reason = status.ResultRolledBack, "runs "+override.Releases()
	}
}
