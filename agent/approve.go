// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// ApplyRequest is a request for an apply.
type ApplyRequest struct {
	plan.Which

	Retry bool `json:"retry,omitempty"` // also releases that failed before
	// DryRun returns what an apply would do now, and changes nothing.
	DryRun bool `json:"dryRun,omitempty"`
	// Expect are the offers that the person saw. If the current offers differ, nothing is approved: plan.MovedError.
	Expect []plan.Shown `json:"expect,omitempty"`
}

// Apply approves and applies the staged releases of the selected images. plan.Which defines the names.
func (a *Agent) Apply(ctx context.Context, req ApplyRequest) ([]status.Outcome, status.Status, error) {
	outcomes, d, err := requests{agent: a, by: status.ActorOf(ctx)}.apply(ctx, req)
	return outcomes, d.status, err
}

// requests runs the requests of people.
type requests struct {
	agent  *Agent
	loop   shared
	by     status.Actor
	caller *caller
}

func (r requests) apply(ctx context.Context, req ApplyRequest) ([]status.Outcome, cycleResult, error) {
	r.agent.tryAgain()
	deny := func(string) {}
	if req.Retry {
		var err error
		if deny, err = r.allow(ctx, req.Which); err != nil {
			return nil, cycleResult{}, err
		}
	}
	pods, d, err := r.podsToApply(ctx, req)
	if r.caller.hasLeft() && ctx.Err() == nil {
		err = errors.Join(r.agent.takeBack(ctx, r.caller), errLeft)
	}
	if err != nil {
		deny("")
		r.agent.records.TrySave(ctx, "")
		return nil, cycleResult{}, err
	}
	outcomes, approved := r.approve(plan.HoldHalves(pods), d.results, deny)
	if len(approved) == 0 {
		if req.Retry {
			d, err = r.agent.cycle(ctx, r.loop, purpose{person: true}) // publish the changed denials
		}
		return outcomes, d, err
	}
	// Save first: after a crash, the next start resumes the apply.
	if err := r.agent.records.Commit(ctx); err != nil {
		return nil, cycleResult{}, err
	}
	for _, p := range approved {
		r.agent.Log.Info("approved", "file", p.File, "change", p.Change, "by", r.by.String())
		r.announceChange(status.Progress{
			Reference: p.File, PodManifest: p.File, Phase: status.PhaseChanging, Edits: p.Edits,
		})
	}
	d, err = r.agent.cycle(ctx, r.loop, purpose{person: true, caller: r.caller})
	if ctx.Err() == nil {
		err = errors.Join(err, r.agent.takeBack(ctx, r.caller))
	}
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

// approve records an approval for each pod that can be applied. The outcomes of approved pods have no result yet. deny
// restores the denials that a retry removed.
func (r requests) approve(
	pods []plan.PodPlan, staged results, deny func(file string),
) (outcomes []status.Outcome, approved []plan.PodPlan) {
	outcomes = make([]status.Outcome, 0, len(pods))
	for _, p := range pods {
		at, o := p.Standing(), outcomeOf(p)
		switch {
		case at.Result == status.ResultHeld && !at.Staged:
			for _, need := range p.Needs() {
				if err := staged.err(need); err != nil {
					o.Reason, o.ErrorKind = o.Reason+": "+err.Error(), status.ErrorKindOf(err)
					break
				}
			}
		case at.Result == "":
			approval := p.Approval(r.agent.records.Record.Approved[p.File], r.agent.Now())
			approval.By = r.by
			o.Edits = p.Edits
			undo, file := r.agent.records.Record.Approved.Undo(p.File), p.File
			r.caller.approves(o, func() { undo(); deny(file) })
			r.agent.records.Record.Approved.Set(p.File, approval)
			approved = append(approved, p)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, approved
}

// outcomeOf returns the outcome that an apply of a pod begins with.
func outcomeOf(p plan.PodPlan) status.Outcome {
	at := p.Standing()
	return status.Outcome{
		PodManifest: p.File, Change: p.Change, Result: at.Result, Reason: at.Reason, Hold: at.Hold, ErrorKind: at.ErrorKind,
	}
}

// takeBack removes the approvals of a caller that has left, for pods whose restart has not begun. An earlier approval
// of another person stays.
func (a *Agent) takeBack(ctx context.Context, c *caller) error {
	undo, files := c.takeBack()
	if len(undo) == 0 {
		return nil
	}
	for _, f := range undo {
		f()
	}
	a.Log.Info("approvals removed: the caller left", "files", files)
	return a.records.Commit(ctx)
}

// announceChange reports a change before it begins.
func (r requests) announceChange(p status.Progress) {
	if to := r.agent.reportsTo(r.loop); to != nil {
		to(p)
	}
}

// askAfterMove polls after an apply during which a tag was moved, so that the new release can be approved. If that poll
// is interrupted, the status of the apply stays.
func (r requests) askAfterMove(ctx context.Context, applied cycleResult) (cycleResult, error) {
	again, err := r.agent.cycle(ctx, r.loop, purpose{poll: source.PollAll})
	if intr, is := errors.AsType[*interruptedError](err); is {
		applied.unfinished = intr
		return applied, nil
	}
	return again, err
}

// allow removes the denials of the selected images, until deny is called.
func (r requests) allow(ctx context.Context, which plan.Which) (deny func(file string), err error) {
	pods, err := r.pick(ctx, ApplyRequest{Which: which})
	if err != nil {
		return nil, err
	}
	before := r.agent.records.Record.Denials()
	for _, p := range pods {
		r.agent.records.Record.Allow(p.File, p.Releases())
	}
	return func(file string) { r.agent.records.Record.Deny(before, file) }, r.agent.records.Commit(ctx)
}

// podsToApply returns the pods of the selected images if their offers are the expected ones. If the node lost their
// staged images (a containerd without pins collects them), they are staged again first, and the returned cycleResult is
// of that cycle.
func (r requests) podsToApply(
	ctx context.Context, req ApplyRequest,
) (pods []plan.PodPlan, d cycleResult, err error) {
	pods, err = r.pick(ctx, req)
	if err != nil || !slices.ContainsFunc(pods, plan.IsUnstaged) {
		return pods, d, err
	}
	var needs []string
	for _, p := range pods {
		needs = append(needs, p.Needs()...)
	}
	staging, end := r.caller.until(ctx)
	d, err = r.agent.cycle(staging, r.loop, purpose{person: true, needs: needs})
	end()
	if err == nil {
		pods, err = r.pick(ctx, req)
	}
	return pods, d, err
}

// pick returns the current plans of the pods of the selected images if their offers are the expected ones.
func (r requests) pick(ctx context.Context, req ApplyRequest) ([]plan.PodPlan, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	pl, err := r.agent.plan(ctx, r.loop, source.PollNone)
	if err != nil {
		return nil, err
	}
	pods, err := plan.Pick(pl, req.Which)
	if err != nil {
		return nil, err
	}
	return pods, plan.CheckShown(pl, pods, req.Expect)
}

// outcome sets the outcome of an approval from the results of its cycle.
func (r requests) outcome(o *status.Outcome, all results) {
	err := all.err(o.PodManifest)
	approval, pending := r.agent.records.Record.Approved[o.PodManifest]
	switch {
	case err != nil:
		o.SetError(err)
	case r.caller.isCanceled(o.PodManifest) && pending:
		o.Result, o.Reason = status.ResultContinues, approval.By.String()+" also approved it"
	case r.caller.isCanceled(o.PodManifest):
		o.Result, o.Reason = status.ResultCanceled, reasonCanceled
	case pending:
		o.Result, o.Reason = status.ResultContinues, reasonInterrupted
	case !all.isApplied(o.PodManifest):
		o.Result, o.Reason = status.ResultHeld, "the offer has changed in the meantime"
	default:
		o.Result = status.ResultApplied
		if unchecked := all.unchecked(o.PodManifest); len(unchecked) > 0 {
			err := &release.UncheckedError{Containers: unchecked}
			o.Reason, o.ErrorKind = err.Error(), status.ErrorKindOf(err)
		}
	}
}
