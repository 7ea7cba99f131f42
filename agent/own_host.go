// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// ownTable keeps the table of the own host in a cycle.
type ownTable struct{ *cycle }

// keep saves what the own host answers on a node as observed. underWay are the tags of what
// was approved and is not proved. An error is reported by the status; the next observation saves
// again.
func (c ownTable) keep(ctx context.Context, inv node.Inventory, underWay []ownhost.Named) {
	if err := c.save(ctx, inv, underWay); err != nil {
		c.log.Warn("table not saved yet", "err", err)
	}
}

func (c ownTable) save(ctx context.Context, inv node.Inventory, underWay []ownhost.Named) error {
	if c.OwnHost == nil {
		return nil
	}
	c.notePrivate()
	return c.OwnHost.Keep(ctx, ownhost.Facts{
		Inventory: inv, Record: c.records.Record, Policy: c.Policy, UnderWay: underWay,
	})
}

// notePrivate records which repositories a registry gives only with a login.
func (c ownTable) notePrivate() {
	rec := &c.records.Record
	for name := range rec.Sources {
		switch private, known := c.OwnHost.Hosts.Private(name); {
		case known && private:
			rec.Private.Set(name, true)
		case known:
			rec.Private.Delete(name)
		}
	}
}

// keepFor saves the table for an apply or a rollback that is about to begin: kubelet then
// gets what the step starts. Images may have been staged since the observation.
func (c ownTable) keepFor(ctx context.Context, s plan.Step) error {
	if c.OwnHost == nil {
		return nil
	}
	inv := c.observed
	held, err := c.Images.Held(ctx)
	if err == nil {
		inv.Held = held
		err = c.save(ctx, inv, startedBy(s))
	}
	if err != nil {
		c.log.Warn("table not saved", "step", s.String(), "err", err)
	}
	c.OwnHost.ProbeNow(ctx)
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

// approved returns the tags of what was approved and is not proved.
func (c ownTable) approved(pl plan.Plan) []ownhost.Named {
	var out []ownhost.Named
	for _, p := range pl.Pods {
		if a, ok := c.records.Record.Approved[p.File]; ok && a.Offer == p.ID && a.IsValid(c.Now()) {
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
func (c ownTable) isGated(p plan.Apply) bool {
	return slices.ContainsFunc(p.Expect, func(e plan.Expectation) bool {
		return c.OwnHost.Position(e.Ref.Repository) == ownhost.Gate
	})
}
