// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"slices"
)

// carry does the steps of a plan: pulls side by side, then the others in their
// order. Where it was interrupted it does no more.
func (a *Agent) carry(ctx context.Context, e errand, steps []Step) *Interruption {
	isPull := func(s Step) bool { return s.Do == StepStage }
	pulls := slices.DeleteFunc(slices.Clone(steps), func(s Step) bool {
		return !isPull(s) || a.errs[s.key()] != nil // tried in this cycle, and put off to the next
	})
	for _, s := range pulls {
		if a.deferred[s.key()] = !e.stages(s.key()); a.deferred[s.key()] && a.unstaged[s.key()] != nil {
			a.errs[s.key()] = a.unstaged[s.key()] // it is as it was
		}
	}
	pulls = slices.DeleteFunc(pulls, func(s Step) bool { return a.deferred[s.key()] })
	if cut := a.stageAll(ctx, pulls); cut != nil {
		return cut
	}
	for _, step := range slices.DeleteFunc(slices.Clone(steps), isPull) {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // asked to stop: between steps, the node is always whole
		}
		if verb := a.people.first(); verb != "" && !e.person {
			return &Interruption{Work: "cycle", For: verb, At: a.Now().UTC()}
		}
		if e.person && !a.isAwaited(step) {
			a.deferred[step.key()] = true
			continue
		}
		if cut := a.do(ctx, step); cut != nil {
			return cut
		}
	}
	return nil
}

// isAwaited reports whether a person waits for a step, but for what takes its time and
// nobody has asked for: to apply what mode auto has found, and to prove what runs anyway.
func (a *Agent) isAwaited(s Step) bool {
	_, approved := a.record.Approved[s.File]
	return !s.Apply.Auto && (s.Do != StepProve || approved || a.applied[s.File])
}

// do carries out a step. Its failure is noted where it belongs and leaves the
// node as it was before the step. A person's request interrupts a proof of what
// runs anyway: it only looks.
func (a *Agent) do(ctx context.Context, s Step) *Interruption {
	if need := a.lacks(s); need != "" {
		a.Log.Info("step waits for an image", "cycle", a.cycle, "step", s.String(), "image", need)
		return nil
	}
	if s.Do != StepProve {
		a.note(ctx, s, a.carryOut(ctx, s))
		return nil
	}
	ctx, end := a.people.interruptible(ctx)
	defer end()
	a.note(ctx, s, a.carryOut(ctx, s))
	return a.interrupted(ctx, "proof", PollNone)
}

// lacks is a release that a step needs and that was not staged in this cycle.
func (a *Agent) lacks(s Step) string {
	for _, need := range s.Needs {
		if a.errs[need] != nil || a.deferred[need] {
			return need
		}
	}
	return ""
}

// note keeps how a step ended.
func (a *Agent) note(ctx context.Context, s Step, err error) {
	switch {
	case err == nil:
		a.Log.Info("step done", "cycle", a.cycle, "step", s.String())
	case ctx.Err() != nil:
		a.Log.Info("step interrupted", "cycle", a.cycle, "step", s.String())
	default:
		a.Log.Warn("step did not work", "cycle", a.cycle, "step", s.String(), "err", err)
		a.errs[s.key()] = fmt.Errorf("%s: %w", s.Do, err)
		a.lags = a.lags || s.Do == StepApply && s.Apply.Pod == podAPIServer
		if s.Do == StepStage {
			a.unstaged[s.key()] = a.errs[s.key()]
		}
	}
}

// key names what a step is about: the release, else the pod manifest.
func (s Step) key() string {
	if s.Do == StepStage {
		return releaseKey(s.Release.Repository, s.Release.Digest)
	}
	return s.File
}

func (a *Agent) carryOut(ctx context.Context, s Step) error {
	if s.Do == StepApply || s.Do == StepRollBack {
		defer a.watched.restart()()
	}
	switch s.Do {
	case StepWrite:
		return a.write(ctx, s)
	case StepKeep:
		return a.Files.Keep(ctx, s.File, s.Data)
	case StepDrop:
		return a.Files.Keep(ctx, s.File, nil)
	case StepRemove:
		return a.remove(ctx, s)
	case StepPin:
		return a.Images.Pins(ctx, s.Pins)
	case StepPrune:
		return a.prune(ctx, s.Gone)
	case StepApply:
		return a.applyAndRecord(ctx, s)
	case StepProve:
		return a.proveRunning(ctx, s)
	case StepRollBack:
		return a.rollBack(ctx, s)
	default:
		return fmt.Errorf("unknown step %q", s.Do)
	}
}

// write writes a pod manifest and remembers that it is ours. What is written is
// written: a record that cannot be kept now is kept, or missed, at the cycle's end.
func (a *Agent) write(ctx context.Context, s Step) error {
	if err := a.Files.Write(ctx, s.Was, s.Data); err != nil {
		return err
	}
	if s.Ours {
		a.record.wrote(s.File, s.Data)
	}
	a.saveSoon(ctx, s.File)
	return nil
}

// saveSoon keeps the record, now or later: what it says of a file is done already.
func (a *Agent) saveSoon(ctx context.Context, file string) {
	if err := a.save(ctx); err != nil {
		a.Log.Warn("record not kept yet", "cycle", a.cycle, "file", file, "err", err)
	}
}

func (a *Agent) remove(ctx context.Context, s Step) error {
	if err := a.Files.Remove(ctx, s.Was); err != nil {
		return err
	}
	delete(a.record.Wrote, s.File)
	return a.save(ctx)
}
