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
)

// stepRunner does the steps of a plan.
type stepRunner struct{ *cycle }

// runSteps does the steps of a plan: rollbacks first, then pulls side by side, then the
// others in their order. It ends at a restart that failed: the next plan rolls that pod
// back. Where it was interrupted it does no more.
func (r stepRunner) runSteps(ctx context.Context, steps []plan.Step) (failed bool, intr error) {
	isPull := func(s plan.Step) bool { return s.Do == plan.StepStage }
	isRollback := func(s plan.Step) bool { return s.Do == plan.StepRollBack }
	for _, s := range steps {
		if isRollback(s) && ctx.Err() == nil {
			r.runStep(ctx, s)
		}
	}
	if intr := r.stageAll(
		ctx, slices.DeleteFunc(slices.Clone(steps), func(s plan.Step) bool { return !isPull(s) }),
	); intr != nil {
		return false, intr
	}
	for _, s := range steps {
		switch {
		case isPull(s) || isRollback(s):
			continue
		case ctx.Err() != nil:
			return false, nil //nolint:nilerr // asked to stop: between steps, the node is always whole
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

// isAwaited reports whether a person waits for a step, but for what takes its time and
// nobody has asked for: to apply what mode auto has found, and to prove what runs anyway.
func (r stepRunner) isAwaited(s plan.Step) bool {
	_, approved := r.records.Record.Approved[s.File]
	return !s.Apply.Auto && (s.Do != plan.StepProve || approved || r.results.isApplied(s.File))
}

// holdRefused holds what a pod that has just not come up speaks against.
func (r stepRunner) holdRefused(ctx context.Context, s plan.Step) {
	if s.Do == plan.StepApply && r.results.unstagedNeed(s) == "" && r.results.refusal(s.Apply) != nil && r.isInWindow(s) {
		r.runStep(ctx, s)
	}
}

// runInterruptible does a step. A person's request interrupts a proof of what runs
// anyway: it only observes.
func (r stepRunner) runInterruptible(ctx context.Context, s plan.Step) (failed bool, intr error) {
	if need := r.results.unstagedNeed(s); need != "" {
		r.log.Info("step waits for an image", "step", s.String(), "image", need)
		return false, nil
	}
	if !r.isInWindow(s) {
		return false, nil
	}
	if s.Do != plan.StepProve {
		return r.runStep(ctx, s).restart.RollBack, nil
	}
	ctx, end := r.queue.interruptible(ctx)
	defer end()
	failed = r.runStep(ctx, s).restart.RollBack
	if intr := r.interruption(ctx, "proof", source.PollNone); intr != nil {
		return failed, intr
	}
	return failed, nil
}

// isInWindow reports whether the window for an apply of mode auto is still open: it may
// close while other pods are applied.
func (r stepRunner) isInWindow(s plan.Step) bool {
	if s.Do != plan.StepApply || !s.Apply.Auto {
		return true
	}
	open, _ := r.Policy.IsWindowOpen(r.Now())
	return open
}

// runStep does a step, and notes how it has ended. A step that fails leaves the node as
// it was before.
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
		return res // it is part of what went wrong with the pod
	}
	r.results = append(r.results, res)
	return res
}

// restart does a step that restarts a pod, or proves what it runs.
func (r stepRunner) restart(ctx context.Context, s plan.Step) apply.RestartResult {
	if s.Do == plan.StepProve {
		approval, approved := r.records.Record.Approved[s.File]
		approved = r.results.isApplied(s.File) || approved && approval.Offer == s.Apply.Offer
		return r.restarter.Prove(ctx, s, approved)
	}
	defer r.watched.Restart()()
	if s.Do == plan.StepRollBack {
		return r.restarter.RollBack(ctx, s)
	}
	return r.restarter.Apply(ctx, s, r.results.refusal(s.Apply))
}

// logResult logs how a step has ended, and names the step in its error.
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

// stageAll stages what a plan wants staged and was not tried in this cycle. A person's
// request interrupts it. A person's cycle stages what that person needs, and leaves the
// rest to the next cycle.
func (r stepRunner) stageAll(ctx context.Context, steps []plan.Step) error {
	var pulls []plan.Step
	var releases []release.Release
	for _, s := range steps {
		switch {
		case r.results.err(s.Key()) != nil:
			// Tried in this cycle, and put off to the next.
		case !r.purpose.stages(s.Key()):
			r.results = append(r.results, stepResult{step: s, err: r.space.Failure(s.Key()), deferred: true}) // it is as it was
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
	if intr := r.interruption(ctx, "staging", source.PollNone); intr != nil {
		return intr
	}
	return nil
}

// prune removes old releases. A container may have been started from one since
// the plan was made.
func (r stepRunner) prune(ctx context.Context, gone []node.HeldImage) error {
	_, used, err := r.Pods.Containers(ctx)
	if err != nil {
		return err
	}
	return r.Images.Prune(ctx, slices.DeleteFunc(slices.Clone(gone), func(h node.HeldImage) bool {
		return slices.Contains(used, h.Config)
	}))
}
