// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/manifests"
)

// bootTimeout limits the time to list the images of the node, because kubelet waits for it.
const bootTimeout = 5 * time.Second

// Boot writes the pod manifests whose templates changed with an update or rollback of the
// system, so that their pods need no restart later. It must run before kubelet starts. It asks
// no registry and needs no approval.
func (a *Agent) Boot(ctx context.Context) ([]plan.BootStep, error) {
	c, err := a.begin(ctx, &Request{})
	if err != nil {
		return nil, err
	}
	if err := c.executor.PutBack(ctx); err != nil {
		return nil, err
	}
	inv, err := c.observer().ObserveFiles(ctx)
	if err != nil {
		return nil, err
	}
	inv.Catalog = c.listing(ctx)
	followed := follow.LocalRegistryFacts(inv, a.records.Record, a.Policy).Followed
	if a.Policy.PullPolicy == manifests.PullIfNotPresent || a.LocalRegistry.IsAsked(followed) {
		inv.Held = c.heldInTime(ctx)
	}
	steps := plan.AtBoot(inv, a.records.Record, a.Policy, a.Now())
	for n := range steps {
		c.boot(ctx, &steps[n])
	}
	if inv.Held != nil {
		c.keepTableAtBoot(ctx, inv, steps)
	}
	return slices.DeleteFunc(steps, func(s plan.BootStep) bool { return s.Do == "" && s.Reason == "" }), nil
}

// keepTableAtBoot saves the table of the local registry for the kubelet that starts next.
func (c *cycle) keepTableAtBoot(ctx context.Context, inv node.Inventory, steps []plan.BootStep) {
	now, err := c.observer().ObserveFiles(ctx)
	if err != nil {
		c.log.Warn("cannot save the table of the local registry", "err", err)
		return
	}
	now.Held, now.Catalog = inv.Held, inv.Catalog
	var rendered []localregistry.Named
	for _, s := range steps {
		if s.Do == plan.StepWrite && s.Err == nil {
			rendered = append(rendered, namedBy(s.Images)...)
		}
	}
	c.keepTable(ctx, now, rendered)
}

// heldInTime returns the images on the node; nil on errors and timeout.
func (c *cycle) heldInTime(ctx context.Context) []node.HeldImage {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	held, err := c.agent.Images.Held(ctx)
	if err != nil {
		c.log.Warn("cannot list the images", "err", err)
	}
	return held
}

func (c *cycle) boot(ctx context.Context, s *plan.BootStep) {
	switch {
	case s.Do == plan.StepWrite:
		s.Err = c.writeAtBoot(ctx, s)
	case s.Do == plan.StepRemove:
		s.Err = c.executor.Remove(ctx, s.Step)
	case s.IsRendered: // the system was rolled back, or the agent was killed after the write
		c.agent.records.Record.Wrote.Set(s.File, digest.FromBytes(s.Was.Data))
		c.agent.records.TrySave(ctx, s.File)
		return
	default:
		c.log.Info("pod manifest not rendered", "file", s.File, "reason", s.Reason)
		return
	}
	c.logResult(ctx, stepResult{step: s.Step, err: s.Err})
}

// writeAtBoot writes a pod manifest. It saves the changed override first: after a crash, the
// agent must not return to it.
func (c *cycle) writeAtBoot(ctx context.Context, s *plan.BootStep) error {
	before, is := c.agent.records.Record.Overrides[s.File]
	if !is {
		return c.executor.Write(ctx, s.Step)
	}
	c.agent.records.Record.EndPlaces(s.File, s.Data, s.Ends)
	err := c.agent.records.Save(ctx)
	if err == nil {
		err = c.executor.Write(ctx, s.Step)
	}
	if err != nil {
		c.agent.records.Record.Overrides.Set(s.File, before)
		err = errors.Join(err, c.agent.records.Save(ctx))
	}
	return err
}
