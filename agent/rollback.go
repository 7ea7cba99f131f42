// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Rollback rolls the selected images back; see Agent.Rollback.
func (l *Loop) Rollback(
	ctx context.Context, which plan.Which, onProgress func(status.Progress),
) ([]status.Outcome, error) {
	r := newRequest(ctx, "rollback", onProgress)
	r.doing, r.which = "rolling back", which
	r.do = func(ctx context.Context) (d cycleResult, err error) {
		r.ended, d, err = l.agent.rollback(ctx, r, which)
		return d, err
	}
	return r.outcomes(l.request(ctx, r))
}

// Rollback returns the pods of the selected images to their last known good releases. It denies the releases that they
// ran.
func (a *Agent) Rollback(ctx context.Context, which plan.Which) ([]status.Outcome, status.Status, error) {
	outcomes, d, err := a.rollback(ctx, newRequest(ctx, "rollback", nil), which)
	return outcomes, d.status, err
}

func (a *Agent) rollback(
	ctx context.Context, r *Request, which plan.Which,
) ([]status.Outcome, cycleResult, error) {
	if r.hasLeft() { // a resumed request
		return nil, cycleResult{}, errors.Join(a.takeBack(ctx, r), errLeft)
	}
	pods, err := a.pick(ctx, ApplyRequest{Which: which})
	if err != nil {
		return nil, cycleResult{}, err
	}
	outcomes, err := a.requestRollback(ctx, r, pods, which)
	if err != nil || !slices.ContainsFunc(outcomes, isOpen) {
		return outcomes, cycleResult{}, err
	}
	for _, o := range outcomes {
		if isOpen(o) {
			a.announceChange(status.Progress{
				Reference: o.PodManifest, PodManifest: o.PodManifest, Phase: status.PhaseReturning, Edits: o.Edits,
			})
		}
	}
	d, err := a.cycle(ctx, r)
	if ctx.Err() == nil {
		err = errors.Join(err, a.takeBack(ctx, r))
	}
	for n := range outcomes {
		if isOpen(outcomes[n]) {
			a.rollbackOutcome(ctx, r, &outcomes[n], d.results)
		}
	}
	return outcomes, d, err
}

func isOpen(o status.Outcome) bool { return o.Result == "" }

// requestRollback records the rollback targets. The outcomes of pods with a target have no result yet.
func (a *Agent) requestRollback(
	ctx context.Context, r *Request, pods []plan.PodPlan, which plan.Which,
) ([]status.Outcome, error) {
	c, err := a.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	inv, err := c.observe(ctx)
	if err != nil {
		return nil, err
	}
	if inv.Busy != "" {
		inv.RestartHolds = []status.Hold{{Name: status.HoldBusy, Reason: inv.Busy, Grain: inv.BusyGrain}}
	} else if a.Preconditions != nil {
		inv.RestartHolds = a.Preconditions.Holds(ctx)
	}
	all := plan.Rollbacks(inv, a.records.Record, a.Policy, a.Now(), pods, which)
	outcomes := make([]status.Outcome, len(all))
	lacks := map[string]error{} // targets that the node does not get, by pod manifest
	for n, rb := range all {
		if outcomes[n] = outcomeBefore(rb, inv.RestartHolds); isOpen(outcomes[n]) {
			staging, end := r.until(ctx)
			if err := c.executor.Provide(staging, *rb.To); err != nil {
				lacks[rb.Pod.File] = fmt.Errorf("nothing was changed: the release to return to is not on the node: %w", err)
			}
			end()
		}
	}
	if r.hasLeft() && ctx.Err() == nil {
		return nil, errLeft
	}
	for n, rb := range all {
		o := &outcomes[n]
		if !isOpen(*o) {
			continue
		}
		if err := lackOf(rb, lacks); err != nil {
			o.SetError(err)
			continue
		}
		o.Edits = rb.Edits
		r.approves(*o, func() { a.records.Record.EndRequest(rb.Pod.File) }, rb.Together...)
		a.recordRollback(r.by, rb)
	}
	return outcomes, a.records.Commit(ctx)
}

// outcomeBefore returns the outcome of a rollback that is not possible, or that the holds forbid; otherwise it has no
// result.
func outcomeBefore(rb plan.Rollback, holds []status.Hold) status.Outcome {
	o := status.Outcome{PodManifest: rb.Pod.File, Change: status.ChangeRollback}
	switch {
	case rb.Err != nil:
		o.SetError(rb.Err)
		if rb.Pod.Err == nil {
			o.Result = status.ResultHeld
		}
	case rb.To == nil:
		o.Result = status.ResultNothing
	case len(holds) > 0:
		o.Result, o.Hold, o.Reason = status.ResultHeld, holds[0].Name, holds[0].Name+": "+holds[0].Reason
	}
	return o
}

// lackOf returns why a pod, or another one that returns with it, cannot be rolled back; nil if all can.
func lackOf(rb plan.Rollback, lacks map[string]error) error {
	if err := lacks[rb.Pod.File]; err != nil {
		return err
	}
	for _, file := range rb.Together {
		if err := lacks[file]; err != nil {
			return &release.HoldError{Hold: status.HoldSet, Err: fmt.Errorf("%s: %w", file, err)}
		}
	}
	return nil
}

// recordRollback records a rollback that has not begun, and what it will deny.
func (a *Agent) recordRollback(by status.Actor, rb plan.Rollback) {
	p, o, replaced := rb.Pod, *rb.To, map[string]string{}
	q := record.Request{Denies: map[string]record.Denial{}, Together: rb.Together}
	for _, i := range p.Images {
		place := node.PlaceOf(i.Want.Image)
		at, ok := o.Images[place]
		if ok && i.Running.Digest != "" && at.Digest != i.Running.Digest {
			key := release.Key(i.Want.Ask.Repository, i.Running.Digest)
			q.Denies[key] = record.Denial{
				At: a.Now().UTC(), Name: i.Running.Tag, PodManifest: p.File, Reason: record.ByHand, ByHand: true,
				Created: a.records.Record.Releases[key].Created,
			}
			replaced[place] = cmp.Or(i.Running.Tag, i.Running.Digest.String())
		}
	}
	o.By = by
	a.records.Record.RequestRollback(p.File, o.Replacing(replaced), q)
	a.Log.Info("rollback requested", "file", p.File, "to", o.Releases(), "by", by.String())
}

// againstRequest returns why a person's rollback must not begin; nil if it may, has begun, or follows a failure.
func (c *cycle) againstRequest(ctx context.Context, file string) error {
	if c.agent.records.Record.Overrides[file].Request == nil {
		return nil
	}
	return c.againstRestart(ctx)
}

// againstRestart returns why the node must not restart a pod now; nil if it may. The plan has asked the same, but a
// hold may have begun during other steps.
func (c *cycle) againstRestart(ctx context.Context) error {
	var now node.Inventory
	if c.observer().ObserveBusy(ctx, &now); now.Busy != "" {
		return &release.HoldError{Hold: status.HoldBusy, Err: errors.New(now.Busy)}
	}
	if c.agent.Preconditions == nil {
		return nil
	}
	for _, h := range c.agent.Preconditions.Holds(ctx) {
		return &release.HoldError{Hold: h.Name, Err: errors.New(h.Reason)}
	}
	return nil
}

// endRequests ends the rollbacks of people that did not begin in this cycle: a later one would surprise them.
func (c *cycle) endRequests(inv node.Inventory, pl plan.Plan) {
	rec := &c.agent.records.Record
	for _, p := range pl.Pods {
		if rec.Overrides[p.File].Request == nil {
			continue
		}
		err := cmp.Or(p.Err, errors.New("the pod manifest cannot be changed"))
		if inv.Busy != "" {
			err = &release.HoldError{Hold: status.HoldBusy, Err: errors.New(inv.Busy)}
		}
		rec.EndRequest(p.File)
		c.results = append(c.results, stepResult{
			step: plan.Step{Do: plan.StepRollBack, File: p.File}, err: fmt.Errorf("%w: %w", release.ErrHeld, err),
		})
		c.log.Info("requested rollback did not begin", "file", p.File, "reason", err)
	}
}

// rollbackOutcome sets the outcome of a rollback from the results of its cycle.
func (a *Agent) rollbackOutcome(ctx context.Context, r *Request, o *status.Outcome, all results) {
	override, err := a.records.Record.Overrides[o.PodManifest], all.err(o.PodManifest)
	switch {
	case err != nil:
		o.SetError(err)
	case r.isCanceled(o.PodManifest):
		o.Result, o.Reason = status.ResultCanceled, reasonCanceled
	case override.Pending:
		o.Result, o.Reason = status.ResultContinues, reasonInterrupted(ctx)
	default:
		o.Result, o.Reason = status.ResultRolledBack, "runs "+override.Releases()
	}
}
