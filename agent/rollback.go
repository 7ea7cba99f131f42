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

// All stands for all images where an empty list is refused.
const All = "*"

// ErrWhich is returned for a rollback without names.
var ErrWhich = errors.New("want images, or " + All + " for all of them")

// Rollback returns the pods of the named images (All: all) to the releases that ran well
// before. It denies the releases that they ran. See Apply for names.
func (a *Agent) Rollback(ctx context.Context, names []string) ([]status.Outcome, status.Status, error) {
	outcomes, d, err := requests{a, status.ActorOf(ctx)}.rollback(ctx, names)
	return outcomes, d.status, err
}

func (r requests) rollback(ctx context.Context, names []string) ([]status.Outcome, cycleResult, error) {
	if len(names) == 0 {
		return nil, cycleResult{}, ErrWhich
	}
	if slices.Contains(names, All) {
		names = nil
	}
	pods, err := r.pick(ctx, names)
	if err != nil {
		return nil, cycleResult{}, err
	}
	outcomes, err := r.requestRollback(ctx, pods, names)
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
	d, err := r.cycle(ctx, purpose{person: true})
	for n := range outcomes {
		if isOpen(outcomes[n]) {
			r.rollbackOutcome(&outcomes[n], d.results)
		}
	}
	return outcomes, d, err
}

func isOpen(o status.Outcome) bool { return o.Result == "" }

// requestRollback records the rollback targets. The outcomes of pods that have one have no
// result yet.
func (r requests) requestRollback(ctx context.Context, pods []plan.PodPlan, names []string) ([]status.Outcome, error) {
	c, err := r.begin(ctx, purpose{})
	if err != nil {
		return nil, err
	}
	inv, err := c.observe(ctx)
	if err != nil {
		return nil, err
	}
	if inv.Busy != "" {
		inv.RestartHolds = []status.Hold{{Name: status.HoldBusy, Reason: inv.Busy, Grain: inv.BusyGrain}}
	} else if r.Preconditions != nil {
		inv.RestartHolds = r.Preconditions.Holds(ctx)
	}
	var outcomes []status.Outcome
	for _, rb := range plan.Rollbacks(inv, r.records.Record, r.Policy, r.Now(), pods, names) {
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
			r.denyRunning(rb.Pod, *rb.To)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, r.records.Commit(ctx)
}

// denyRunning records the override and denies what it replaces.
func (r requests) denyRunning(p plan.PodPlan, o record.Override) {
	replaced := map[string]string{}
	for _, i := range p.Images {
		place := node.PlaceOf(i.Want.Image)
		at, ok := o.Images[place]
		if ok && i.Running.Digest != "" && at.Digest != i.Running.Digest {
			r.records.Record.Denied.Set(release.Key(i.Want.Ask.Repository, i.Running.Digest), record.Denial{
				At: r.Now().UTC(), Name: i.Running.Tag, PodManifest: p.File, Reason: record.ByHand, ByHand: true,
				Created: r.records.Record.Releases[release.Key(i.Want.Ask.Repository, i.Running.Digest)].Created,
			})
			replaced[place] = cmp.Or(i.Running.Tag, i.Running.Digest.String())
		}
	}
	o.By = r.by
	r.records.Record.Approved.Delete(p.File)
	r.records.Record.Overrides.Set(p.File, o.Replacing(replaced))
	r.Log.Info("rollback requested", "file", p.File, "to", o.Releases(), "by", r.by.String())
}

// rollbackOutcome sets the outcome of a rollback from the results of its cycle.
func (r requests) rollbackOutcome(o *status.Outcome, all results) {
	override, err := r.records.Record.Overrides[o.PodManifest], all.err(o.PodManifest)
	switch {
	case err != nil:
		o.SetError(err)
	case override.Pending:
		o.Result, o.Reason = status.ResultHeld, "interrupted: it goes on at the next start"
	default:
		o.Result, o.Reason = status.ResultRolledBack, "runs "+override.Releases()
	}
}
