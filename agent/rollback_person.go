// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"

	"github.com/opencontainers/go-digest"
)

// All stands for all images where nothing named would be too easily meant for that.
const All = "*"

// ErrWhich: nothing is named, and nobody has said that all is meant.
var ErrWhich = errors.New("want images, or " + All + " for all of them")

// Rollback returns the pods of the named images (All: of all) to the releases that ran
// well before the ones that run now. Those are denied then, until a newer one comes.
// See Apply for names.
func (a *Agent) Rollback(ctx context.Context, names []string) ([]Outcome, Status, error) {
	outcomes, done, err := a.rollback(ctx, names)
	return outcomes, done.status, err
}

func (a *Agent) rollback(ctx context.Context, names []string) ([]Outcome, done, error) {
	if len(names) == 0 {
		return nil, done{}, ErrWhich
	}
	if slices.Contains(names, All) {
		names = nil
	}
	plan, err := a.Plan(ctx, PollNone)
	if err != nil {
		return nil, done{}, err
	}
	pods, err := pick(plan, names)
	if err != nil {
		return nil, done{}, err
	}
	outcomes, err := a.requestRollback(ctx, pods, names)
	if err != nil || !slices.ContainsFunc(outcomes, isOpen) {
		return outcomes, done{}, err
	}
	for _, o := range outcomes {
		if isOpen(o) {
			a.announceChange(Progress{Reference: o.PodManifest, Phase: phaseReturning, Edits: o.Edits})
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

func isOpen(o Outcome) bool { return o.Result == "" }

// requestRollback records what pods are to return to. What becomes of one that has a way
// back is open.
func (a *Agent) requestRollback(ctx context.Context, pods []PodPlan, names []string) ([]Outcome, error) {
	c, err := a.begin(ctx, errand{})
	if err != nil {
		return nil, err
	}
	inv, err := c.observe(ctx)
	if err != nil {
		return nil, err
	}
	d, views := newDecider(inv, nil, a.records.Record, a.Policy, a.Now())
	if inv.Busy != "" {
		inv.Against = []Hold{{Name: HoldBusy, Reason: inv.Busy, Grain: inv.BusyGrain}}
	} else if a.Preconditions != nil {
		inv.Against = a.Preconditions.Holds(ctx)
	}
	var outcomes []Outcome
	for _, p := range pods {
		at := slices.IndexFunc(views, func(v podView) bool { return v.file == p.File })
		if at < 0 {
			continue // gone meanwhile
		}
		o := Outcome{PodManifest: p.File, Change: "rollback"}
		if p.Err != nil {
			o.end(p.Err)
			outcomes = append(outcomes, o)
			continue
		}
		override, err := d.before(views[at], p, names)
		switch {
		case err != nil:
			o.end(err)
			o.Result = ResultHeld
		case override == nil:
			o.Result = ResultNothing
		case len(inv.Against) > 0:
			against := inv.Against[0]
			o.Result, o.Hold, o.Reason = ResultHeld, against.Name, against.Name+": "+against.Reason
		default:
			o.Edits = override.edits(p)
			a.denyRunning(p, *override)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, a.records.Commit(ctx)
}

// before is the override that returns the named images of a pod to what ran well
// before, and the others to what they run: nil where nothing is known to. What CRI
// does not show is none that can be returned from.
func (d *decider) before(v podView, p PodPlan, names []string) (*Override, error) {
	if v.disk == nil {
		return nil, nil
	}
	running := map[string]digest.Digest{}
	for _, i := range p.Images {
		named := len(names) == 0 || slices.Contains(names, p.File) ||
			slices.ContainsFunc(names, func(n string) bool { return isNamed(i, n) })
		if isContainer(i.Want.Image) && named {
			running[i.Want.Image.Container] = i.Running.Digest
		}
	}
	another := false
	o, err := d.wayBack(v, func(container string, g Good) Pin {
		if running[container] == "" {
			return Pin{g.Repository, g.Running}
		}
		for _, pin := range append([]Pin{{g.Repository, g.Running}}, g.Before...) {
			_, denied := d.rec.Denied[releaseKey(pin.Repository, pin.Digest)]
			if pin.Digest != running[container] && !denied {
				another = another || pin.Digest != ""
				return pin
			}
		}
		return Pin{g.Repository, g.Running}
	})
	if err != nil || !another {
		return nil, err
	}
	o.Reason, o.ByHand, o.From = byHand, true, digest.FromBytes(v.disk.Data)
	return &o, nil
}

// denyRunning records that a pod is to go to its override, and denies what it leaves.
func (a *Agent) denyRunning(p PodPlan, o Override) {
	for _, i := range p.Images {
		at, ok := o.Images[placeOf(i.Want.Image)]
		if ok && i.Running.Digest != "" && at.Digest != i.Running.Digest {
			a.records.Record.Denied.Set(releaseKey(i.Want.Ask.Repository, i.Running.Digest), Denial{
				At: a.Now().UTC(), Name: i.Running.Tag, PodManifest: p.File, Reason: byHand, ByHand: true,
				Created: a.records.Record.Releases[releaseKey(i.Want.Ask.Repository, i.Running.Digest)].Created,
			})
		}
	}
	a.records.Record.Approved.Delete(p.File)
	a.records.Record.Overrides.Set(p.File, o)
}

// rollbackOutcome reads from the cycle that has just ended what became of a rollback.
func (a *Agent) rollbackOutcome(o *Outcome, all results) {
	override, err := a.records.Record.Overrides[o.PodManifest], all.err(o.PodManifest)
	switch {
	case err != nil:
		o.end(err)
	case override.Pending:
		o.Result, o.Reason = ResultHeld, "interrupted: it goes on at the next start"
	default:
		o.Result, o.Reason = ResultBack, "runs "+override.releases()
	}
}
