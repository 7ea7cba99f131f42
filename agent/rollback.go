// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// All stands for all images where nothing named would be too easily meant for that.
const All = "*"

// ErrWhich: nothing is named, and nobody has said that all is meant.
var ErrWhich = errors.New("want images, or " + All + " for all of them")

// Rollback returns the pods of the named images (All: of all) to the releases that ran
// well before the ones that run now. Those are denied then, until a newer one comes.
// See Apply for names.
func (a *Agent) Rollback(ctx context.Context, names []string) ([]status.Outcome, status.Status, error) {
	outcomes, done, err := requests{a}.rollback(ctx, names)
	return outcomes, done.status, err
}

func (a requests) rollback(ctx context.Context, names []string) ([]status.Outcome, done, error) {
	if len(names) == 0 {
		return nil, done{}, ErrWhich
	}
	if slices.Contains(names, All) {
		names = nil
	}
	p, err := a.Plan(ctx, source.PollNone)
	if err != nil {
		return nil, done{}, err
	}
	pods, err := plan.Pick(p, names)
	if err != nil {
		return nil, done{}, err
	}
	outcomes, err := a.requestRollback(ctx, pods, names)
	if err != nil || !slices.ContainsFunc(outcomes, isOpen) {
		return outcomes, done{}, err
	}
	for _, o := range outcomes {
		if isOpen(o) {
			a.announceChange(status.Progress{Reference: o.PodManifest, Phase: status.PhaseReturning, Edits: o.Edits})
		}
	}
	d, err := a.cycle(ctx, errand{person: true})
	for n := range outcomes {
		if isOpen(outcomes[n]) {
			a.rollbackOutcome(&outcomes[n], d.results)
		}
	}
	return outcomes, d, err
}

func isOpen(o status.Outcome) bool { return o.Result == "" }

// requestRollback records what pods are to return to. What becomes of one that has a way
// back is open.
func (a requests) requestRollback(ctx context.Context, pods []plan.PodPlan, names []string) ([]status.Outcome, error) {
	c, err := a.begin(ctx, errand{})
	if err != nil {
		return nil, err
	}
	inv, err := c.observe(ctx)
	if err != nil {
		return nil, err
	}
	if inv.Busy != "" {
		inv.Against = []status.Hold{{Name: status.HoldBusy, Reason: inv.Busy, Grain: inv.BusyGrain}}
	} else if a.Preconditions != nil {
		inv.Against = a.Preconditions.Holds(ctx)
	}
	var outcomes []status.Outcome
	for _, r := range plan.Rollbacks(inv, a.records.Record, a.Policy, a.Now(), pods, names) {
		o := status.Outcome{PodManifest: r.Pod.File, Change: "rollback"}
		switch {
		case r.Err != nil:
			o.End(r.Err)
			if r.Pod.Err == nil {
				o.Result = status.ResultHeld
			}
		case r.To == nil:
			o.Result = status.ResultNothing
		case len(inv.Against) > 0:
			against := inv.Against[0]
			o.Result, o.Hold, o.Reason = status.ResultHeld, against.Name, against.Name+": "+against.Reason
		default:
			o.Edits = r.Edits
			a.denyRunning(r.Pod, *r.To)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, a.records.Commit(ctx)
}

// denyRunning records that a pod is to go to its override, and denies what it leaves.
func (a requests) denyRunning(p plan.PodPlan, o record.Override) {
	for _, i := range p.Images {
		at, ok := o.Images[node.PlaceOf(i.Want.Image)]
		if ok && i.Running.Digest != "" && at.Digest != i.Running.Digest {
			a.records.Record.Denied.Set(release.Key(i.Want.Ask.Repository, i.Running.Digest), record.Denial{
				At: a.Now().UTC(), Name: i.Running.Tag, PodManifest: p.File, Reason: record.ByHand, ByHand: true,
				Created: a.records.Record.Releases[release.Key(i.Want.Ask.Repository, i.Running.Digest)].Created,
			})
		}
	}
	a.records.Record.Approved.Delete(p.File)
	a.records.Record.Overrides.Set(p.File, o)
}

// rollbackOutcome reads from the cycle that has just ended what became of a rollback.
func (a requests) rollbackOutcome(o *status.Outcome, all results) {
	override, err := a.records.Record.Overrides[o.PodManifest], all.err(o.PodManifest)
	switch {
	case err != nil:
		o.End(err)
	case override.Pending:
		o.Result, o.Reason = status.ResultHeld, "interrupted: it goes on at the next start"
	default:
		o.Result, o.Reason = status.ResultBack, "runs "+override.Releases()
	}
}
