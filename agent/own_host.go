// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// keepTable saves what the own host answers on a node as observed. underWay are the tags of what
// was approved and is not proved. An error is reported by the status; the next observation saves
// again.
func (c *cycle) keepTable(ctx context.Context, inv node.Inventory, underWay []ownhost.Named) {
	if err := c.saveTable(ctx, inv, underWay); err != nil {
		c.log.Warn("table not saved yet", "err", err)
	}
}

func (c *cycle) saveTable(ctx context.Context, inv node.Inventory, underWay []ownhost.Named) error {
	if c.agent.OwnHost == nil {
		return nil
	}
	c.notePrivate()
	f := follow.OwnHostFacts(inv, c.agent.records.Record, c.agent.Policy)
	f.UnderWay = underWay
	return c.agent.OwnHost.Keep(ctx, f)
}

// notePrivate records which repositories a registry gives only with a login.
func (c *cycle) notePrivate() {
	rec := &c.agent.records.Record
	for name := range rec.Sources {
		switch private, known := c.agent.OwnHost.Hosts.Private(name); {
		case known && private:
			rec.Private.Set(name, true)
		case known:
			rec.Private.Delete(name)
		}
	}
}

// keepTableFor saves the table for an apply or a rollback that is about to begin: kubelet then
// gets what the step starts. Images may have been staged since the observation.
func (c *cycle) keepTableFor(ctx context.Context, s plan.Step) error {
	if c.agent.OwnHost == nil {
		return nil
	}
	inv := c.observed
	held, err := c.agent.Images.Held(ctx)
	if err == nil {
		inv.Held = held
		err = c.saveTable(ctx, inv, startedBy(s))
	}
	if err != nil {
		c.log.Warn("table not saved", "step", s.String(), "err", err)
	}
	c.agent.OwnHost.ProbeNow(ctx)
	return err
}

// startedBy returns the tags that a step starts, with their digests.
func startedBy(s plan.Step) []ownhost.Named {
	var out []ownhost.Named
	for _, e := range s.Apply.Expect {
		out = append(out, ownhost.Named{Reference: e.Ref, Digest: e.Digest})
	}
	return out
}

// approvedTags returns the tags of what was approved and is not proved.
func (c *cycle) approvedTags(pl plan.Plan) []ownhost.Named {
	var out []ownhost.Named
	for _, p := range pl.Pods {
		if a, ok := c.agent.records.Record.Approved[p.File]; ok && a.Offer == p.ID && a.IsValid(c.agent.Now()) {
			out = append(out, namedBy(p.Images)...)
		}
	}
	return out
}

// namedBy returns the tags that images are to have, with their digests.
func namedBy(images []plan.ImagePlan) []ownhost.Named {
	var out []ownhost.Named
	for _, i := range images {
		if node.IsContainer(i.Want.Image) {
			out = append(out, ownhost.Named{
				Reference: release.Reference{Repository: i.Target.Repository, Tag: i.Target.Tag}, Digest: i.Target.Digest,
			})
		}
	}
	return out
}

// isGated reports whether kubelet asks the own host first for an image of an apply.
func (c *cycle) isGated(p plan.Apply) bool {
	return slices.ContainsFunc(p.Expect, func(e plan.Expectation) bool {
		return c.agent.OwnHost.Position(e.Ref.Repository) == ownhost.Gate
	})
}
