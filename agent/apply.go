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

// Apply approves and applies the selected images; see Agent.Apply.
func (l *Loop) Apply(
	ctx context.Context, req ApplyRequest, onProgress func(status.Progress),
) ([]status.Outcome, error) {
	if req.DryRun {
		r := newRequest(ctx, "dry run", nil)
		r.do = func(ctx context.Context) (d cycleResult, err error) {
			r.ended, err = l.agent.dryRun(ctx, req)
			return d, err
		}
		return r.outcomes(l.request(ctx, r))
	}
	r := newRequest(ctx, "apply", onProgress)
	r.doing, r.which = "applying what was approved", req.Which
	r.do = func(ctx context.Context) (d cycleResult, err error) {
		now := req
		req.Retry = false // a resumed apply does not remove denials made meanwhile
		r.ended, d, err = l.agent.apply(ctx, r, now)
		return d, err
	}
	return r.outcomes(l.request(ctx, r))
}

// Apply approves and applies the staged releases of the selected images. plan.Which defines the names.
func (a *Agent) Apply(ctx context.Context, req ApplyRequest) ([]status.Outcome, status.Status, error) {
	outcomes, d, err := a.apply(ctx, newRequest(ctx, "apply", nil), req)
	return outcomes, d.status, err
}

func (a *Agent) apply(ctx context.Context, r *Request, req ApplyRequest) ([]status.Outcome, cycleResult, error) {
	a.tryAgain()
	deny := func(string) {}
	if req.Retry {
		var err error
		if deny, err = a.allow(ctx, req.Which); err == nil {
			err = a.records.Commit(ctx)
		}
		if err != nil {
			return nil, cycleResult{}, err
		}
	}
	pods, d, err := a.podsToApply(ctx, r, req)
	if r.hasLeft() && ctx.Err() == nil {
		err = errors.Join(a.takeBack(ctx, r), errLeft)
	}
	if err != nil {
		deny("")
		a.records.TrySave(ctx, "")
		return nil, cycleResult{}, err
	}
	outcomes, approved := a.approve(r, plan.HoldHalves(pods), d.results, deny)
	if len(approved) == 0 {
		if req.Retry {
			d, err = a.cycle(ctx, r) // publish the changed denials
		}
		return outcomes, d, err
	}
	// Save first: after a crash, the next start resumes the apply.
	if err := a.records.Commit(ctx); err != nil {
		return nil, cycleResult{}, err
	}
	for _, p := range approved {
		a.Log.Info("approved", "file", p.File, "change", p.Change, "by", r.by.String())
		a.announceChange(status.Progress{
			Reference: p.File, PodManifest: p.File, Phase: status.PhaseChanging, Edits: p.Edits,
		})
	}
	d, err = a.cycle(ctx, r)
	if ctx.Err() == nil {
		err = errors.Join(err, a.takeBack(ctx, r))
	}
	for n := range outcomes {
		if isOpen(outcomes[n]) {
			a.outcome(ctx, r, &outcomes[n], d.results)
		}
	}
	if err == nil && d.results.hasTagMoved() {
		d, err = a.askAfterMove(ctx, d)
	}
	return outcomes, d, err
}

// approve records an approval for each pod that can be applied. The outcomes of approved pods have no result yet. deny
// restores the denials that a retry removed.
func (a *Agent) approve(
	r *Request, pods []plan.PodPlan, staged results, deny func(file string),
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
			approval := p.Approval(a.records.Record.Approved[p.File], a.Now())
			approval.By = r.by
			o.Edits = p.Edits
			undo, file := a.records.Record.Approved.Undo(p.File), p.File
			r.approves(o, func() { undo(); deny(file) })
			a.records.Record.Approved.Set(p.File, approval)
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
		Brings: p.Brings().OrNil(),
	}
}

// takeBack removes the approvals of a caller that has left, for pods whose restart has not begun. An earlier approval
// of another person stays.
func (a *Agent) takeBack(ctx context.Context, r *Request) error {
	undo, files := r.takeBack()
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
func (a *Agent) announceChange(p status.Progress) {
	if a.Progress != nil {
		a.Progress(p)
	}
}

// askAfterMove polls after an apply during which a tag was moved, so that the new release can be approved. If that poll
// is interrupted, the status of the apply stays.
func (a *Agent) askAfterMove(ctx context.Context, applied cycleResult) (cycleResult, error) {
	again, err := a.cycle(ctx, &Request{poll: source.PollAll})
	if intr, is := errors.AsType[*interruptedError](err); is {
		applied.unfinished = intr
		return applied, nil
	}
	return again, err
}

// allow removes the denials of the selected images, until deny is called.
func (a *Agent) allow(ctx context.Context, which plan.Which) (deny func(file string), err error) {
	pods, err := a.pick(ctx, ApplyRequest{Which: which})
	if err != nil {
		return nil, err
	}
	before := a.records.Record.Denials()
	for _, p := range pods {
		a.records.Record.Allow(p.File, p.Releases())
	}
	return func(file string) { a.records.Record.Deny(before, file) }, nil
}

// podsToApply returns the pods of the selected images if their offers are the expected ones. If the node lost their
// staged images (a containerd without pins collects them), they are staged again first, and the returned cycleResult is
// of that cycle.
func (a *Agent) podsToApply(
	ctx context.Context, r *Request, req ApplyRequest,
) (pods []plan.PodPlan, d cycleResult, err error) {
	pods, err = a.pick(ctx, req)
	if err != nil || !slices.ContainsFunc(pods, plan.IsUnstaged) {
		return pods, d, err
	}
	var needs []string
	for _, p := range pods {
		needs = append(needs, p.Needs()...)
	}
	staging, end := r.until(ctx)
	d, err = a.cycle(staging, r, needs...)
	end()
	if err == nil {
		pods, err = a.pick(ctx, req)
	}
	return pods, d, err
}

// pick returns the current plans of the pods of the selected images if their offers are the expected ones.
func (a *Agent) pick(ctx context.Context, req ApplyRequest) ([]plan.PodPlan, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	pl, err := a.Plan(ctx, source.PollNone)
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
func (a *Agent) outcome(ctx context.Context, r *Request, o *status.Outcome, all results) {
	err := all.err(o.PodManifest)
	approval, pending := a.records.Record.Approved[o.PodManifest]
	switch {
	case err != nil:
		o.SetError(err)
	case r.isCanceled(o.PodManifest) && pending:
		o.Result, o.Reason = status.ResultContinues, approval.By.String()+" also approved it"
	case r.isCanceled(o.PodManifest):
		o.Result, o.Reason = status.ResultCanceled, reasonCanceled
	case pending:
		o.Result, o.Reason = status.ResultContinues, reasonInterrupted(ctx)
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

// dryRun returns the outcomes that an apply would begin with, and changes nothing. Pods that it would restart are the
// first, in its order, with the result status.ResultWouldApply. Only a real apply asks for the fleet lock, the
// health of the control plane and the digests of the tags.
func (a *Agent) dryRun(ctx context.Context, req ApplyRequest) ([]status.Outcome, error) {
	record := &a.records.Record
	if req.Retry {
		deny, err := a.allow(ctx, req.Which)
		if err != nil {
			return nil, err
		}
		defer deny("")
	}
	pods, err := a.pick(ctx, req)
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
			record.Approved.Set(p.File, p.Approval(record.Approved[p.File], a.Now()))
		}
		outcomes = append(outcomes, o)
	}
	approved, err := a.Plan(ctx, source.PollNone)
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
