// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Apply approves and applies what is staged for the named images (no names: all). A name is a
// repository, its last path elements or the file name of a pod manifest. retry: apply again
// what failed before.
func (a *Agent) Apply(ctx context.Context, names []string, retry bool) ([]status.Outcome, status.Status, error) {
	outcomes, d, err := requests{a, status.ActorOf(ctx)}.apply(ctx, names, retry)
	return outcomes, d.status, err
}

// requests carries out the requests of a person.
type requests struct {
	*Agent

	by status.Actor
}

func (r requests) apply(ctx context.Context, names []string, retry bool) ([]status.Outcome, cycleResult, error) {
	if retry {
		if err := r.allow(ctx, names); err != nil {
			return nil, cycleResult{}, err
		}
	}
	pods, d, err := r.podsToApply(ctx, names)
	if err != nil {
		return nil, cycleResult{}, err
	}
	outcomes, approved := r.approve(pods, d.results)
	if len(approved) == 0 {
		if retry {
			d, err = r.cycle(ctx, purpose{person: true}) // publish the changed denials
		}
		return outcomes, d, err
	}
	// Save first: after a crash, the next start resumes the apply.
	if err := r.records.Commit(ctx); err != nil {
		return nil, cycleResult{}, err
	}
	for _, p := range approved {
		r.announceChange(status.Progress{
			Reference: p.File, PodManifest: p.File, Phase: status.PhaseChanging, Edits: p.Edits,
		})
	}
	d, err = r.cycle(ctx, purpose{person: true})
	for n := range outcomes {
		if isOpen(outcomes[n]) {
			r.outcome(&outcomes[n], d.results)
		}
	}
	if err == nil && d.results.hasTagMoved() {
		d, err = r.askAfterMove(ctx, d)
	}
	return outcomes, d, err
}

// approve records an approval of each pod that can be applied. The outcomes of approved pods
// have no result yet.
func (r requests) approve(pods []plan.PodPlan, staged results) (outcomes []status.Outcome, approved []plan.PodPlan) {
	outcomes = make([]status.Outcome, 0, len(pods))
	for _, p := range pods {
		at := p.Standing()
		o := status.Outcome{
			PodManifest: p.File, Change: p.Change, Result: at.Result, Reason: at.Reason, Hold: at.Hold, ErrorKind: at.ErrorKind,
		}
		switch {
		case at.Result == status.ResultHeld && !at.Staged:
			for _, need := range p.Needs() {
				if err := staged.err(need); err != nil {
					o.Reason, o.ErrorKind = o.Reason+": "+err.Error(), status.ErrorKindOf(err)
					break
				}
			}
		case at.Result == "":
			approval := p.Approval(r.Now())
			approval.By = r.by
			r.records.Record.Approved.Set(p.File, approval)
			r.Log.Info("approved", "file", p.File, "change", p.Change, "by", r.by.String())
			o.Edits = p.Edits
			approved = append(approved, p)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, approved
}

// announceChange reports a change before it begins.
func (a *Agent) announceChange(p status.Progress) {
	if a.Progress != nil {
		a.Progress(p)
	}
}

// askAfterMove polls after an apply during which a tag was moved, so that the new release can
// be approved. An interrupted poll keeps the status of the apply.
func (r requests) askAfterMove(ctx context.Context, applied cycleResult) (cycleResult, error) {
	again, err := r.cycle(ctx, purpose{poll: source.PollAll})
	if intr, is := errors.AsType[*interruptedError](err); is {
		applied.unfinished = intr
		return applied, nil
	}
	return again, err
}

// allow removes the denials of the named images.
func (r requests) allow(ctx context.Context, names []string) error {
	pods, err := r.pick(ctx, names)
	if err != nil {
		return err
	}
	for _, p := range pods {
		r.records.Record.Allow(p.File, p.Releases())
	}
	return r.records.Commit(ctx)
}

// podsToApply returns the pods of the named images. If the node lost their staged images (a
// containerd without pins collects them), they are staged again first, and the result is of
// that cycle.
func (r requests) podsToApply(ctx context.Context, names []string) (pods []plan.PodPlan, d cycleResult, err error) {
	pods, err = r.pick(ctx, names)
	if err != nil || !slices.ContainsFunc(pods, plan.IsUnstaged) {
		return pods, d, err
	}
	var needs []string
	for _, p := range pods {
		needs = append(needs, p.Needs()...)
	}
	d, err = r.cycle(ctx, purpose{person: true, needs: needs})
	if err == nil {
		pods, err = r.pick(ctx, names)
	}
	return pods, d, err
}

// pick returns the current plans of the pods of the named images.
func (r requests) pick(ctx context.Context, names []string) ([]plan.PodPlan, error) {
	pl, err := r.Plan(ctx, source.PollNone)
	if err != nil {
		return nil, err
	}
	return plan.Pick(pl, names)
}

// outcome sets the outcome of an approval from the results of its cycle.
func (r requests) outcome(o *status.Outcome, all results) {
	err := all.err(o.PodManifest)
	_, pending := r.records.Record.Approved[o.PodManifest]
	switch {
	case err != nil:
		o.SetError(err)
	case pending:
		o.Result, o.Reason = status.ResultHeld, "interrupted: it goes on at the next start"
	case !all.isApplied(o.PodManifest):
		o.Result, o.Reason = status.ResultHeld, "the offer has changed meanwhile"
	default:
		o.Result = status.ResultApplied
		if unchecked := all.unchecked(o.PodManifest); len(unchecked) > 0 {
			o.Reason = "readiness not checked: " + strings.Join(unchecked, ", ")
		}
	}
}
