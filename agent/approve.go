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

// Apply approves what is staged for the named images (all, where none is
// named) and carries it out. A name is a repository, the end of one after a
// slash, or a pod manifest's file name. retry: what did not come up before is
// tried again.
func (a *Agent) Apply(ctx context.Context, names []string, retry bool) ([]status.Outcome, status.Status, error) {
	outcomes, d, err := requests{a}.apply(ctx, names, retry)
	return outcomes, d.status, err
}

// requests are what persons ask of the agent.
type requests struct{ *Agent }

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
			d, err = r.cycle(ctx, purpose{person: true}) // what was denied is not any more
		}
		return outcomes, d, err
	}
	// Saved before the first act: a crash in the middle goes on where it was.
	if err := r.records.Commit(ctx); err != nil {
		return nil, cycleResult{}, err
	}
	for _, p := range approved {
		r.announceChange(status.Progress{Reference: p.File, Phase: status.PhaseChanging, Edits: p.Edits})
	}
	d, err = r.cycle(ctx, purpose{person: true})
	for n := range outcomes {
		if outcomes[n].Result == "" {
			r.outcome(&outcomes[n], d.results)
		}
	}
	if err == nil && d.results.hasTagMoved() {
		d, err = r.askAfterMove(ctx, d)
	}
	return outcomes, d, err
}

// approve records an approval of each pod that can be applied. It returns what becomes
// of the others; the result of those that are approved is open.
func (r requests) approve(pods []plan.PodPlan, staged results) (outcomes []status.Outcome, approved []plan.PodPlan) {
	outcomes = make([]status.Outcome, 0, len(pods))
	for _, p := range pods {
		at := p.Standing()
		o := status.Outcome{
			PodManifest: p.File, Change: p.Change, Result: at.Result, Reason: at.Reason, Hold: at.Hold, ErrorKind: at.ErrorKind,
		}
		switch {
		case at.Result == status.ResultHeld && !at.Staged:
			if err := unstagedBy(p, staged); err != nil {
				o.Reason, o.ErrorKind = o.Reason+": "+err.Error(), status.ErrorKindOf(err)
			}
		case at.Result == "":
			r.records.Record.Approved.Set(p.File, p.Approval(r.Now()))
			o.Edits = p.Edits
			approved = append(approved, p)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, approved
}

// announceChange reports what is about to change.
func (a *Agent) announceChange(p status.Progress) {
	if a.Progress != nil {
		a.Progress(p)
	}
}

// askAfterMove polls after an apply whose floating tag was moved meanwhile, so
// that what the tag names now can be approved. Where a person interrupts the poll,
// the status stays that of the apply, which is done.
func (r requests) askAfterMove(ctx context.Context, applied cycleResult) (cycleResult, error) {
	again, err := r.cycle(ctx, purpose{poll: source.PollAll})
	if intr, is := errors.AsType[*interruptedError](err); is {
		applied.unfinished = intr
		return applied, nil
	}
	return again, err
}

// allow takes back the denials of the named images.
func (r requests) allow(ctx context.Context, names []string) error {
	pl, err := r.Plan(ctx, source.PollNone)
	if err != nil {
		return err
	}
	pods, err := plan.Pick(pl, names)
	if err != nil {
		return err
	}
	for _, p := range pods {
		r.records.Record.Allow(p.File, p.Releases())
	}
	return r.records.Commit(ctx)
}

// podsToApply are the pod manifests that use the named images. Where one is not ready
// because the node has lost what was staged, as to the garbage collection of a
// containerd that knows no pins, it is staged again first: who waits for an apply
// should not have to ask twice. Then done is what that came to.
func (r requests) podsToApply(ctx context.Context, names []string) (pods []plan.PodPlan, d cycleResult, err error) {
	pl, err := r.Plan(ctx, source.PollNone)
	if err == nil {
		pods, err = plan.Pick(pl, names)
	}
	if err != nil || !slices.ContainsFunc(pods, plan.IsUnstaged) {
		return pods, d, err
	}
	var needs []string
	for _, p := range pods {
		needs = append(needs, p.Needs()...)
	}
	d, err = r.cycle(ctx, purpose{person: true, needs: needs})
	if err == nil {
		pl, err = r.Plan(ctx, source.PollNone)
	}
	if err == nil {
		pods, err = plan.Pick(pl, names)
	}
	return pods, d, err
}

// unstagedBy is why a pod's images are not staged, where that is known.
func unstagedBy(p plan.PodPlan, staged results) error {
	for _, need := range p.Needs() {
		if err := staged.err(need); err != nil {
			return err
		}
	}
	return nil
}

// outcome reads from the cycle that has just ended what became of an approval.
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
