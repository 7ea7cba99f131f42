// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// runSteps runs rollbacks first, then pulls in parallel, then the other steps in order. It stops after a failed
// restart: the next plan rolls that pod back. intr is the interruption by a person.
func (c *cycle) runSteps(ctx context.Context, steps []plan.Step) (failed bool, intr error) {
	c.steps, c.restarts, c.allRestarts = steps, 0, 0
	for _, s := range steps {
		if c.isRestart(s) {
			c.allRestarts++
		}
	}
	for _, s := range steps {
		if s.Do == plan.StepRollBack && ctx.Err() == nil {
			c.runStep(ctx, s)
		}
	}
	if intr := c.stageAll(ctx, steps); intr != nil {
		return false, intr
	}
	c.executor.RecordNew(ctx, steps)
	for _, s := range steps {
		switch {
		case s.Do == plan.StepStage || s.Do == plan.StepRollBack:
			continue
		case ctx.Err() != nil:
			return false, nil //nolint:nilerr // the caller reports; the node is whole between steps
		case failed:
			c.holdRefused(ctx, s)
			continue
		}
		if c.agent.queue.urgentVerb() != "" && !c.request.urgent {
			return false, c.newInterruption("cycle", source.PollNone)
		}
		if c.request.urgent && !c.isAwaited(s) {
			c.results = append(c.results, stepResult{step: s, deferred: true})
			continue
		}
		if failed, intr = c.runInterruptible(ctx, s); intr != nil {
			return false, intr
		}
	}
	return failed, nil
}

// number tells the progress which restart of how many begins.
func (c *cycle) number(s plan.Step) {
	if !c.isRestart(s) {
		return
	}
	c.restarts++
	c.executor.Progress.Number(c.restarts, c.allRestarts)
}

// isRestart reports whether a step restarts a pod in this cycle.
func (c *cycle) isRestart(s plan.Step) bool {
	return s.Do == plan.StepRollBack || s.Do == plan.StepApply && (!c.request.urgent || c.isAwaited(s))
}

// isAwaited reports whether a step is part of a person's request: not an apply of mode auto, and a health check only of
// an approved release.
func (c *cycle) isAwaited(s plan.Step) bool {
	_, approved := c.agent.records.Record.Approved[s.File]
	return !s.Apply.Auto && (s.Do != plan.StepVerify || approved || c.results.isApplied(s.File))
}

// holdRefused records a hold for an apply that an earlier failed restart refuses.
func (c *cycle) holdRefused(ctx context.Context, s plan.Step) {
	if s.Do == plan.StepApply && c.results.unstagedNeed(s) == "" && c.results.refusal(s.Apply) != nil && c.isInWindow(s) {
		c.runStep(ctx, s)
	}
}

// runInterruptible runs a step. A person's request interrupts a health check, which only observes.
func (c *cycle) runInterruptible(ctx context.Context, s plan.Step) (failed bool, intr error) {
	need := c.results.unstagedNeed(s)
	switch {
	case need != "":
		c.log.Info("step waits for an image", "step", s.String(), "image", need)
		return false, nil
	case !c.isInWindow(s):
		return false, nil
	case s.Do != plan.StepVerify:
		return c.runStep(ctx, s).restart.RollBack, nil
	}
	ctx, end := c.agent.queue.interruptible(ctx)
	defer end()
	failed = c.runStep(ctx, s).restart.RollBack
	return failed, c.interruption(ctx, "health check", source.PollNone)
}

// isInWindow reports whether mode auto may still begin a step: the window may close during
// other steps.
func (c *cycle) isInWindow(s plan.Step) bool {
	if s.Do != plan.StepApply || !s.Apply.Auto || c.agent.records.Record.SetOf(s.File) != "" {
		return true
	}
	open, _ := c.agent.Policy.IsWindowOpen(c.agent.Now())
	return open
}

// runStep runs a step. A failed step leaves the node as it was.
func (c *cycle) runStep(ctx context.Context, s plan.Step) stepResult {
	res := stepResult{step: s}
	c.number(s)
	o := c.agent.records.Record.Overrides[s.File]
	switch s.Do {
	case plan.StepWrite:
		res.err = c.executor.Write(ctx, s)
	case plan.StepKeep:
		res.err = c.agent.Files.Keep(ctx, s.File, s.Data)
	case plan.StepDrop:
		res.err = c.agent.Files.Keep(ctx, s.File, nil)
	case plan.StepRemove:
		res.err = c.executor.Remove(ctx, s)
	case plan.StepPin:
		res.err = c.agent.Images.Pins(ctx, s.Pins)
	case plan.StepPrune:
		res.err = c.prune(ctx, s.Gone)
	case plan.StepApply, plan.StepVerify, plan.StepRollBack:
		res.restart = c.restart(ctx, s)
		res.err = res.restart.Err
		if res.restart.Canceled && ctx.Err() == nil {
			res.err = c.agent.takeBack(ctx, c.request)
			_, res.deferred = c.agent.records.Record.Approved[s.File] // approved by another person
		}
	default:
		res.err = fmt.Errorf("unknown step %q", s.Do)
	}
	if s.Do == plan.StepRollBack && o.Set != "" && res.err == nil && ctx.Err() == nil && !res.restart.Canceled {
		res.err = &release.HoldError{Hold: status.HoldSet, Err: fmt.Errorf("runs %s: %s", o.Releases(), o.Reason)}
	}
	res = c.logResult(ctx, res)
	if s.Do == plan.StepRollBack && c.results.addRollback(s.File, o.Releases(), res.restart.Err) {
		return res // the error of the apply includes it
	}
	c.results = append(c.results, res)
	return res
}

// restart runs an apply, a rollback or a health check.
func (c *cycle) restart(ctx context.Context, s plan.Step) apply.Result {
	if s.Do == plan.StepVerify {
		approval, approved := c.agent.records.Record.Approved[s.File]
		approved = c.results.isApplied(s.File) || approved && approval.Offer == s.Apply.Offer
		return c.executor.Verify(ctx, s, approved)
	}
	defer c.agent.watched.Restart()()
	unsaved := c.keepTableFor(ctx, s)
	if s.Do == plan.StepRollBack { // a rollback names digests, which kubelet does not pull
		if err := c.againstRequest(ctx, s.File); err != nil {
			c.agent.records.Record.EndRequest(s.File)
			return apply.Result{Err: errors.Join(err, c.agent.records.Save(ctx))}
		}
		result := c.executor.RollBack(ctx, s)
		c.request.end(s.File, result.Err, status.ResultRolledBack)
		return result
	}
	if s.Apply.Auto {
		c.log.Info("approved", "file", s.File, "by", status.Actor{Kind: status.ByAuto}.String())
	}
	against := c.results.refusal(s.Apply)
	if against == nil && unsaved != nil && c.isGated(s.Apply) {
		against = fmt.Errorf("%w: %w", release.ErrHeld, unsaved)
	}
	if against == nil && c.agent.records.Record.SetOf(s.File) == "" { // a begun set goes on
		if against = c.againstRestart(ctx); against != nil && c.request.find(s.File) == nil {
			return apply.Result{Err: against} // as if the plan had found it: an earlier approval stays
		}
	}
	if against == nil {
		against = c.beginSet(ctx, s)
	}
	result := c.executor.Apply(ctx, s, against)
	c.request.end(s.File, result.Err, status.ResultApplied)
	if result.RollBack { // the release that it started is denied
		c.keepTable(ctx, c.observed, nil)
	}
	return result
}

// logResult logs the result and adds the verb to its error.
func (c *cycle) logResult(ctx context.Context, res stepResult) stepResult {
	switch {
	case res.err == nil && res.restart.Canceled:
		c.log.Info("step canceled by its caller", "step", res.step.String())
	case res.err == nil:
		c.log.Info("step done", "step", res.step.String())
	case ctx.Err() != nil:
		c.log.Info("step interrupted", "step", res.step.String())
		res.err = nil
	default:
		c.log.Warn("step failed", "step", res.step.String(), "err", res.err)
		res.err = fmt.Errorf("%s: %w", res.step.Do, res.err)
	}
	return res
}

// stageAll stages releases that were not tried in this cycle. A person's request interrupts
// it, and a person's cycle stages only what it needs.
func (c *cycle) stageAll(ctx context.Context, steps []plan.Step) error {
	var pulls []plan.Step
	var releases []release.Release
	for _, s := range steps {
		switch {
		case s.Do != plan.StepStage || s.Lost || c.results.err(s.Key()) != nil:
			// Not a pull, or it failed in this cycle: the next one retries.
		case c.request.urgent && !slices.Contains(c.needs, s.Key()):
			c.results = append(c.results, stepResult{step: s, err: c.agent.space.Failure(s.Key()), deferred: true})
		default:
			pulls, releases = append(pulls, s), append(releases, s.Release)
		}
	}
	isLost := func(s plan.Step) bool { return s.Lost && !c.request.urgent }
	if len(pulls) == 0 && !slices.ContainsFunc(steps, isLost) {
		return nil
	}
	ctx, end := c.agent.queue.interruptible(ctx)
	defer end()
	for n, err := range c.stager.StageAll(ctx, releases) {
		res := c.logResult(ctx, stepResult{step: pulls[n], err: err})
		c.results = append(c.results, res)
		c.agent.space.SetFailure(res.step.Key(), res.err)
	}
	c.fetchLost(ctx, steps)
	return c.interruption(ctx, "staging", source.PollNone)
}

// fetchLost fetches the releases that the node has lost. A failure is no failure of the node: it only has nothing to
// return to. What the registry does not have either is asked for by the next poll.
func (c *cycle) fetchLost(ctx context.Context, steps []plan.Step) {
	for _, s := range steps {
		if !s.Lost || c.request.urgent || ctx.Err() != nil || c.agent.space.Failure(s.Key()) != nil {
			continue
		}
		res := c.logResult(ctx, stepResult{step: s, err: c.stager.Stage(ctx, s.Release)})
		c.agent.space.SetFailure(s.Key(), res.err)
	}
}

// prune removes image records, except those from which a container has meanwhile started.
func (c *cycle) prune(ctx context.Context, gone []node.HeldImage) error {
	_, used, err := c.agent.Pods.Containers(ctx)
	if err != nil {
		return err
	}
	return c.agent.Images.Prune(ctx, slices.DeleteFunc(slices.Clone(gone), func(h node.HeldImage) bool {
		return slices.Contains(used, h.Config)
	}))
}

// decideSets makes the plan. Before, it records the end of sets whose pods were restarted, and rollbacks of sets that
// cannot be completed.
func (c *cycle) decideSets(
	ctx context.Context, inv node.Inventory, offers map[release.Question]source.Offer,
) plan.Plan {
	pl := c.decide(ctx, inv, offers)
	if changed := c.recordSets(pl); !changed {
		return pl
	}
	if err := c.agent.records.Save(ctx); err != nil {
		c.log.Warn("cannot save the record yet", "err", err)
	}
	return c.decide(ctx, inv, offers)
}

// recordSets records the outcome of sets whose pods were restarted.
func (c *cycle) recordSets(pl plan.Plan) (changed bool) {
	rec := &c.agent.records.Record
	for _, s := range pl.BegunSets {
		for file, o := range s.Undo {
			c.log.Warn("pod is rolled back with its set", "file", file, "set", s.Name, "to", o.Releases(), "reason", s.Why)
			rec.Approved.Delete(file)
			rec.Overrides.Set(file, o)
			changed = true
		}
		if !s.Ended {
			continue
		}
		for file, why := range s.Stays {
			c.log.Error("set is partly applied", "set", s.Name, "file", file, "reason", s.Why, "stays", why)
		}
		rec.Sets.Delete(s.Name)
		changed = true
	}
	return changed
}

// beginSet begins the set of an apply if it is the first of its pods. It returns why none of them may be applied.
func (c *cycle) beginSet(ctx context.Context, s plan.Step) error {
	set := s.Apply.Set
	if len(s.Apply.Together) == 0 || c.agent.records.Record.SetOf(s.File) != "" {
		return nil
	}
	if err, tried := c.setErrs[set]; tried {
		return err
	}
	err := c.tryBeginSet(ctx, s)
	if c.setErrs == nil {
		c.setErrs = map[string]error{}
	}
	if err != nil {
		c.setErrs[set] = err
	}
	return err
}

func (c *cycle) tryBeginSet(ctx context.Context, s plan.Step) error {
	steps := slices.DeleteFunc(slices.Clone(c.steps), func(other plan.Step) bool {
		return other.Do != plan.StepApply || other.File != s.File && !slices.Contains(s.Apply.Together, other.File)
	})
	var missing []string
	for _, file := range s.Apply.Together {
		if !slices.ContainsFunc(steps, func(other plan.Step) bool { return other.File == file }) {
			missing = append(missing, file)
		}
	}
	if len(missing) > 0 {
		return &release.HoldError{
			Hold: status.HoldSet, Err: errors.New(s.Apply.Set + ": not approved: " + strings.Join(missing, ", ")),
		}
	}
	for _, other := range steps {
		if need := c.results.unstagedNeed(other); need != "" {
			return &release.HoldError{Hold: status.HoldSet, Err: errors.New(s.Apply.Set + ": not staged: " + need)}
		}
		if err := c.results.refusal(other.Apply); err != nil {
			return err
		}
	}
	return c.executor.BeginSet(ctx, s.Apply.Set, steps)
}
