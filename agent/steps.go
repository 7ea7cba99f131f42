// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// stepRunner runs the steps of a plan.
type stepRunner struct{ *cycle }

// runSteps runs rollbacks first, then pulls in parallel, then the other steps in order. After
// a failed restart it runs no more: the next plan rolls that pod back. intr is the
// interruption by a person.
func (r stepRunner) runSteps(ctx context.Context, steps []plan.Step) (failed bool, intr error) {
	for _, s := range steps {
		if s.Do == plan.StepRollBack && ctx.Err() == nil {
			r.runStep(ctx, s)
		}
	}
	if intr := r.stageAll(ctx, steps); intr != nil {
		return false, intr
	}
	for _, s := range steps {
		switch {
		case s.Do == plan.StepStage || s.Do == plan.StepRollBack:
			continue
		case ctx.Err() != nil:
			return false, nil //nolint:nilerr // the caller reports; the node is whole between steps
		case failed:
			r.holdRefused(ctx, s)
			continue
		}
		if r.queue.urgentVerb() != "" && !r.person {
			return false, r.newInterruption("cycle", source.PollNone)
		}
		if r.person && !r.isAwaited(s) {
			r.results = append(r.results, stepResult{step: s, deferred: true})
			continue
		}
		if failed, intr = r.runInterruptible(ctx, s); intr != nil {
			return false, intr
		}
	}
	return failed, nil
}

// isAwaited reports whether a step is part of a person's request: not an apply of mode auto,
// and a proof only of what was approved.
func (r stepRunner) isAwaited(s plan.Step) bool {
	_, approved := r.records.Record.Approved[s.File]
	return !s.Apply.Auto && (s.Do != plan.StepProve || approved || r.results.isApplied(s.File))
}

// holdRefused holds an apply that the failed restart refuses.
func (r stepRunner) holdRefused(ctx context.Context, s plan.Step) {
	if s.Do == plan.StepApply && r.results.unstagedNeed(s) == "" && r.results.refusal(s.Apply) != nil && r.isInWindow(s) {
		r.runStep(ctx, s)
	}
}

// runInterruptible runs a step. A person's request interrupts a proof, which only observes.
func (r stepRunner) runInterruptible(ctx context.Context, s plan.Step) (failed bool, intr error) {
	need := r.results.unstagedNeed(s)
	switch {
	case need != "":
		r.log.Info("step waits for an image", "step", s.String(), "image", need)
		return false, nil
	case !r.isInWindow(s):
		return false, nil
	case s.Do != plan.StepProve:
		return r.runStep(ctx, s).restart.RollBack, nil
	}
	ctx, end := r.queue.interruptible(ctx)
	defer end()
	failed = r.runStep(ctx, s).restart.RollBack
	return failed, r.interruption(ctx, "proof", source.PollNone)
}

// isInWindow reports whether mode auto may still begin a step: the window may close during
// other steps.
func (r stepRunner) isInWindow(s plan.Step) bool {
	if s.Do != plan.StepApply || !s.Apply.Auto {
		return true
	}
	open, _ := r.Policy.IsWindowOpen(r.Now())
	return open
}

// runStep runs a step. A failed step leaves the node as it was.
func (r stepRunner) runStep(ctx context.Context, s plan.Step) stepResult {
	res := stepResult{step: s}
	o := r.records.Record.Overrides[s.File]
	switch s.Do {
	case plan.StepWrite:
		res.err = r.restarter.Write(ctx, s)
	case plan.StepKeep:
		res.err = r.Files.Keep(ctx, s.File, s.Data)
	case plan.StepDrop:
		res.err = r.Files.Keep(ctx, s.File, nil)
	case plan.StepRemove:
		res.err = r.restarter.Remove(ctx, s)
	case plan.StepPin:
		res.err = r.Images.Pins(ctx, s.Pins)
	case plan.StepPrune:
		res.err = r.prune(ctx, s.Gone)
	case plan.StepApply, plan.StepProve, plan.StepRollBack:
		res.restart = r.restart(ctx, s)
		res.err = res.restart.Err
	default:
		res.err = fmt.Errorf("unknown step %q", s.Do)
	}
	res = r.logResult(ctx, res)
	if s.Do == plan.StepRollBack && r.results.addRollback(s.File, o.Releases(), res.restart.Err) {
		return res // the error of the apply includes it
	}
	r.results = append(r.results, res)
	return res
}

// restart runs an apply, a rollback or a proof.
func (r stepRunner) restart(ctx context.Context, s plan.Step) apply.RestartResult {
	if s.Do == plan.StepProve {
		approval, approved := r.records.Record.Approved[s.File]
		approved = r.results.isApplied(s.File) || approved && approval.Offer == s.Apply.Offer
		return r.restarter.Prove(ctx, s, approved)
	}
	defer r.watched.Restart()()
	own := ownTable(r)
	unsaved := own.keepFor(ctx, s)
	if s.Do == plan.StepRollBack { // it names digests, which kubelet does not pull
		return r.restarter.RollBack(ctx, s)
	}
	if s.Apply.Auto {
		r.log.Info("approved", "file", s.File, "by", status.Actor{Kind: status.ByAuto}.String())
	}
	against := r.results.refusal(s.Apply)
	if against == nil && unsaved != nil && own.isGated(s.Apply) {
		against = fmt.Errorf("%w: %w", release.ErrHeld, unsaved)
	}
	result := r.restarter.Apply(ctx, s, against)
	if result.RollBack { // what it started is denied
		own.keep(ctx, r.observed, nil)
	}
	return result
}

// logResult logs the result and adds the verb to its error.
func (r stepRunner) logResult(ctx context.Context, res stepResult) stepResult {
	switch {
	case res.err == nil:
		r.log.Info("step done", "step", res.step.String())
	case ctx.Err() != nil:
		r.log.Info("step interrupted", "step", res.step.String())
		res.err = nil
	default:
		r.log.Warn("step failed", "step", res.step.String(), "err", res.err)
		res.err = fmt.Errorf("%s: %w", res.step.Do, res.err)
	}
	return res
}

// stageAll stages releases that were not tried in this cycle. A person's request interrupts
// it, and a person's cycle stages only what it needs.
func (r stepRunner) stageAll(ctx context.Context, steps []plan.Step) error {
	var pulls []plan.Step
	var releases []release.Release
	for _, s := range steps {
		switch {
		case s.Do != plan.StepStage || r.results.err(s.Key()) != nil:
			// Not a pull, or it failed in this cycle: the next one retries.
		case r.person && !slices.Contains(r.needs, s.Key()):
			r.results = append(r.results, stepResult{step: s, err: r.space.Failure(s.Key()), deferred: true})
		default:
			pulls, releases = append(pulls, s), append(releases, s.Release)
		}
	}
	if len(pulls) == 0 {
		return nil
	}
	ctx, end := r.queue.interruptible(ctx)
	defer end()
	for n, err := range r.stager.StageAll(ctx, releases) {
		res := r.logResult(ctx, stepResult{step: pulls[n], err: err})
		r.results = append(r.results, res)
		r.space.SetFailure(res.step.Key(), res.err)
	}
	return r.interruption(ctx, "staging", source.PollNone)
}

// prune removes image records, but none that a container has meanwhile started from.
func (r stepRunner) prune(ctx context.Context, gone []node.HeldImage) error {
	_, used, err := r.Pods.Containers(ctx)
	if err != nil {
		return err
	}
	return r.Images.Prune(ctx, slices.DeleteFunc(slices.Clone(gone), func(h node.HeldImage) bool {
		return slices.Contains(used, h.Config)
	}))
}
