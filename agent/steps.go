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
func (c stepRunner) runSteps(ctx context.Context, steps []plan.Step) (failed bool, cut error) {
	isPull := func(s plan.Step) bool { return s.Do == plan.StepStage }
	isRollback := func(s plan.Step) bool { return s.Do == plan.StepRollBack }
	for _, s := range steps {
		if isRollback(s) && ctx.Err() == nil {
			c.runStep(ctx, s)
		}
	}
	if cut := c.stageAll(
		ctx, slices.DeleteFunc(slices.Clone(steps), func(s plan.Step) bool { return !isPull(s) }),
	); cut != nil {
		return false, cut
	}
	for _, s := range steps {
		switch {
		case isPull(s) || isRollback(s):
			continue
		case ctx.Err() != nil:
			return false, nil //nolint:nilerr // asked to stop: between steps, the node is always whole
		case failed:
			c.refuse(ctx, s)
			continue
		}
		if c.queue.first() != "" && !c.person {
			return false, c.interruption("cycle", source.PollNone)
		}
		if c.person && !c.isAwaited(s) {
			c.results = append(c.results, stepResult{step: s, deferred: true})
			continue
		}
		if failed, cut = c.runInterruptible(ctx, s); cut != nil {
			return false, cut
		}
	}
	return failed, nil
}

// isAwaited reports whether a person waits for a step, but for what takes its time and
// nobody has asked for: to apply what mode auto has found, and to prove what runs anyway.
func (c stepRunner) isAwaited(s plan.Step) bool {
	_, approved := c.records.Record.Approved[s.File]
	return !s.Apply.Auto && (s.Do != plan.StepProve || approved || c.results.isApplied(s.File))
}

// refuse holds what a pod that has just not come up speaks against.
func (c stepRunner) refuse(ctx context.Context, s plan.Step) {
	if s.Do == plan.StepApply && c.results.missing(s) == "" && c.results.against(s.Apply) != nil && c.mayBegin(s) {
		c.runStep(ctx, s)
	}
}

// runInterruptible does a step. A person's request interrupts a proof of what runs
// anyway: it only observes.
func (c stepRunner) runInterruptible(ctx context.Context, s plan.Step) (failed bool, cut error) {
	if need := c.results.missing(s); need != "" {
		c.log.Info("step waits for an image", "step", s.String(), "image", need)
		return false, nil
	}
	if !c.mayBegin(s) {
		return false, nil
	}
	if s.Do != plan.StepProve {
		return c.runStep(ctx, s).restart.RollBack, nil
	}
	ctx, end := c.queue.interruptible(ctx)
	defer end()
	failed = c.runStep(ctx, s).restart.RollBack
	if cut := c.interrupted(ctx, "proof", source.PollNone); cut != nil {
		return failed, cut
	}
	return failed, nil
}

// mayBegin reports whether the window for an apply of mode auto is still open: it may
// close while other pods are applied.
func (c stepRunner) mayBegin(s plan.Step) bool {
	if s.Do != plan.StepApply || !s.Apply.Auto {
		return true
	}
	open, _ := c.Policy.Open(c.Now())
	return open
}

// runStep does a step, and notes how it has ended. A step that fails leaves the node as
// it was before.
func (c stepRunner) runStep(ctx context.Context, s plan.Step) stepResult {
	r := stepResult{step: s}
	o := c.records.Record.Overrides[s.File]
	switch s.Do {
	case plan.StepWrite:
		r.err = c.restarter.Write(ctx, s)
	case plan.StepKeep:
		r.err = c.Files.Keep(ctx, s.File, s.Data)
	case plan.StepDrop:
		r.err = c.Files.Keep(ctx, s.File, nil)
	case plan.StepRemove:
		r.err = c.restarter.Remove(ctx, s)
	case plan.StepPin:
		r.err = c.Images.Pins(ctx, s.Pins)
	case plan.StepPrune:
		r.err = c.prune(ctx, s.Gone)
	case plan.StepApply, plan.StepProve, plan.StepRollBack:
		r.restart = c.restart(ctx, s)
		r.err = r.restart.Err
	default:
		r.err = fmt.Errorf("unknown step %q", s.Do)
	}
	r = c.note(ctx, r)
	if s.Do == plan.StepRollBack && c.results.rolledBack(s.File, o.Releases(), r.restart.Err) {
		return r // it is part of what went wrong with the pod
	}
	c.results = append(c.results, r)
	return r
}

// restart does a step that restarts a pod, or proves what it runs.
func (c stepRunner) restart(ctx context.Context, s plan.Step) apply.RestartResult {
	if s.Do == plan.StepProve {
		approval, approved := c.records.Record.Approved[s.File]
		approved = c.results.isApplied(s.File) || approved && approval.Offer == s.Apply.Offer
		return c.restarter.Prove(ctx, s, approved)
	}
	defer c.watched.Restart()()
	if s.Do == plan.StepRollBack {
		return c.restarter.RollBack(ctx, s)
	}
	return c.restarter.Apply(ctx, s, c.results.against(s.Apply))
}

// note logs how a step has ended, and names the step in its error.
func (c stepRunner) note(ctx context.Context, r stepResult) stepResult {
	switch {
	case r.err == nil:
		c.log.Info("step done", "step", r.step.String())
	case ctx.Err() != nil:
		c.log.Info("step interrupted", "step", r.step.String())
		r.err = nil
	default:
		c.log.Warn("step failed", "step", r.step.String(), "err", r.err)
		r.err = fmt.Errorf("%s: %w", r.step.Do, r.err)
	}
	return r
}

// stageAll stages what a plan wants staged and was not tried in this cycle. A person's
// request interrupts it. A person's cycle stages what that person needs, and leaves the
// rest to the next cycle.
func (c stepRunner) stageAll(ctx context.Context, steps []plan.Step) error {
	var pulls []plan.Step
	var releases []release.Release
	for _, s := range steps {
		switch {
		case c.results.err(s.Key()) != nil:
			// Tried in this cycle, and put off to the next.
		case !c.errand.stages(s.Key()):
			c.results = append(c.results, stepResult{step: s, err: c.space.Failure(s.Key()), deferred: true}) // it is as it was
		default:
			pulls, releases = append(pulls, s), append(releases, s.Release)
		}
	}
	if len(pulls) == 0 {
		return nil
	}
	ctx, end := c.queue.interruptible(ctx)
	defer end()
	for n, err := range c.stager.StageAll(ctx, releases) {
		r := c.note(ctx, stepResult{step: pulls[n], err: err})
		c.results = append(c.results, r)
		c.space.SetFailure(r.step.Key(), r.err)
	}
	if cut := c.interrupted(ctx, "staging", source.PollNone); cut != nil {
		return cut
	}
	return nil
}

// prune removes old releases. A container may have been started from one since
// the plan was made.
func (c stepRunner) prune(ctx context.Context, gone []node.HeldImage) error {
	_, used, err := c.Pods.Containers(ctx)
	if err != nil {
		return err
	}
	return c.Images.Prune(ctx, slices.DeleteFunc(slices.Clone(gone), func(h node.HeldImage) bool {
		return slices.Contains(used, h.Config)
	}))
}
