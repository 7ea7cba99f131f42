// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/manifests"
)

// bootTimeout is how long containerd may take to say what the node holds: kubelet
// waits for it.
const bootTimeout = 5 * time.Second

// Boot brings pod manifests to the templates that an update or a rollback of the
// system has brought, so that their pods start with them instead of being restarted
// later. It is for the time before kubelet starts: a write restarts nothing then,
// and needs nobody's approval. It asks no registry, and offers nothing: what a
// template does not name stays as it is. The caller sees to it that kubelet has not
// started.
func (a *Agent) Boot(ctx context.Context) ([]plan.BootStep, error) {
	begun, err := a.begin(ctx, purpose{})
	if err != nil {
		return nil, err
	}
	c := bootCycle{begun}
	if err := c.restarter.PutBack(ctx); err != nil {
		return nil, err
	}
	inv, err := c.observer().ObserveFiles(ctx)
	if err != nil {
		return nil, err
	}
	if a.Policy.PullPolicy == manifests.PullIfNotPresent {
		inv.Held = c.heldInTime(ctx)
	}
	steps := plan.AtBoot(inv, a.records.Record, a.Policy, a.Now())
	for n := range steps {
		c.boot(ctx, &steps[n])
	}
	return slices.DeleteFunc(steps, func(s plan.BootStep) bool { return s.Do == "" && s.Reason == "" }), nil
}

// bootCycle is a cycle before kubelet starts.
type bootCycle struct{ *cycle }

// heldInTime is what the node holds, nothing where nobody says so in time.
func (b bootCycle) heldInTime(ctx context.Context) []node.HeldImage {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	held, err := b.Images.Held(ctx)
	if err != nil {
		b.log.Warn("images not seen", "err", err)
	}
	return held
}

func (b bootCycle) boot(ctx context.Context, s *plan.BootStep) {
	switch {
	case s.Do == plan.StepWrite:
		s.Err = b.writeAtBoot(ctx, s)
	case s.Do == plan.StepRemove:
		s.Err = b.restarter.Remove(ctx, s.Step)
	case s.IsRendered: // a system that was rolled back, or a kill after the write
		b.records.Record.Wrote.Set(s.File, digest.FromBytes(s.Was.Data))
		b.records.TrySave(ctx, s.File)
		return
	default:
		b.log.Info("pod manifest stays", "file", s.File, "reason", s.Reason)
		return
	}
	stepRunner{b.cycle}.logResult(ctx, stepResult{step: s.Step, err: s.Err})
}

// writeAtBoot writes a pod manifest. What its override says no more is kept first: who
// goes on after a kill must not go back to it.
func (b bootCycle) writeAtBoot(ctx context.Context, s *plan.BootStep) error {
	before, is := b.records.Record.Overrides[s.File]
	if !is {
		return b.restarter.Write(ctx, s.Step)
	}
	b.records.Record.EndPlaces(s.File, s.Data, s.Ends)
	err := b.records.Save(ctx)
	if err == nil {
		err = b.restarter.Write(ctx, s.Step)
	}
	if err != nil {
		b.records.Record.Overrides.Set(s.File, before)
		err = errors.Join(err, b.records.Save(ctx))
	}
	return err
}
