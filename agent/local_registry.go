// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// keepTable saves the table of the local registry for an observed node. underWay are the tags of approved releases
// before their health check. The status reports an error; the next observation saves again.
func (c *cycle) keepTable(ctx context.Context, inv node.Inventory, underWay []localregistry.Named) {
	if err := c.saveTable(ctx, inv, underWay); err != nil {
		c.log.Warn("cannot save the table of the local registry yet", "err", err)
	}
}

func (c *cycle) saveTable(ctx context.Context, inv node.Inventory, underWay []localregistry.Named) error {
	if c.agent.LocalRegistry == nil {
		return nil
	}
	c.notePrivate()
	f := follow.LocalRegistryFacts(inv, c.agent.records.Record, c.agent.Policy)
	f.UnderWay = underWay
	return c.agent.LocalRegistry.Keep(ctx, f)
}

// notePrivate records the repositories that need a login.
func (c *cycle) notePrivate() {
	rec := &c.agent.records.Record
	for name := range rec.Sources {
		switch private, known := c.agent.LocalRegistry.Hosts.Private(name); {
		case known && private:
			rec.Private.Set(name, true)
		case known:
			rec.Private.Delete(name)
		}
	}
}

// keepTableFor saves the table before an apply or a rollback, so that kubelet gets the images that the step starts.
// Images may have been staged since the observation.
func (c *cycle) keepTableFor(ctx context.Context, s plan.Step) error {
	if c.agent.LocalRegistry == nil {
		return nil
	}
	inv := c.observed
	held, err := c.agent.Images.Held(ctx)
	if err == nil {
		inv.Held = held
		err = c.saveTable(ctx, inv, startedBy(s))
	}
	if err != nil {
		c.log.Warn("cannot save the table of the local registry", "step", s.String(), "err", err)
	}
	c.agent.LocalRegistry.ProbeNow(ctx)
	return err
}

// startedBy returns the tags that a step starts, with their digests.
func startedBy(s plan.Step) []localregistry.Named {
	var out []localregistry.Named
	for _, e := range s.Apply.Expect {
		out = append(out, localregistry.Named{Reference: e.Ref, Digest: e.Digest})
	}
	return out
}

// approvedTags returns the tags of approved releases before their health check.
func (c *cycle) approvedTags(pl plan.Plan) []localregistry.Named {
	var out []localregistry.Named
	for _, p := range pl.Pods {
		if a, ok := c.agent.records.Record.Approved[p.File]; ok && a.Offer == p.ID && a.IsValid(c.agent.Now()) {
			out = append(out, namedBy(p.Images)...)
		}
	}
	return out
}

// namedBy returns the new tags of images with their digests.
func namedBy(images []plan.ImagePlan) []localregistry.Named {
	var out []localregistry.Named
	for _, i := range images {
		if node.IsContainer(i.Want.Image) {
			out = append(out, localregistry.Named{
				Reference: release.Reference{Repository: i.Target.Repository, Tag: i.Target.Tag}, Digest: i.Target.Digest,
			})
		}
	}
	return out
}

// isGated reports whether kubelet asks the local registry first for an image of an apply.
func (c *cycle) isGated(p plan.Apply) bool {
	return slices.ContainsFunc(p.Expect, func(e plan.Expectation) bool {
		return c.agent.LocalRegistry.Position(e.Ref.Repository) == localregistry.Gate
	})
}

// ErrNothingToDo is returned for a request that changes nothing.
var ErrNothingToDo = errors.New("nothing to do")

// EnableLocalRegistry adds the local registry of the node to the hosts of a registry, and returns the status; or
// ErrNothingToDo if it is there already.
func (l *Loop) EnableLocalRegistry(ctx context.Context, registry string, gate bool) (status.Status, error) {
	at := localregistry.Fallback
	if gate {
		at = localregistry.Gate
	}
	return l.changeLocalRegistry(ctx, "enable", func(ctx context.Context, f localregistry.Files) (bool, error) {
		return f.Enable(ctx, registry, at)
	})
}

// DisableLocalRegistry removes the local registry from those hosts, and returns the status; or ErrNothingToDo if it is
// not there.
func (l *Loop) DisableLocalRegistry(ctx context.Context, registry string) (status.Status, error) {
	return l.changeLocalRegistry(ctx, "disable", func(ctx context.Context, f localregistry.Files) (bool, error) {
		return f.Disable(ctx, registry)
	})
}

// changeLocalRegistry runs a person's request on the loop, so that no apply finds other hosts than it began with.
func (l *Loop) changeLocalRegistry(
	ctx context.Context, verb string, change func(context.Context, localregistry.Files) (bool, error),
) (status.Status, error) {
	changed := false // by a run that another person has interrupted
	r := newRequest(ctx, verb, nil)
	r.do = func(ctx context.Context) (d cycleResult, err error) {
		own := l.agent.LocalRegistry
		if own == nil || own.Files == nil {
			return d, ErrNothingToDo
		}
		if !changed {
			if changed, err = change(ctx, own.Files); err == nil && !changed {
				err = ErrNothingToDo
			}
		}
		d, errCycle := l.agent.cycle(ctx, r)
		return d, errors.Join(err, errCycle)
	}
	err := l.request(ctx, r)
	return l.Status(), err
}
