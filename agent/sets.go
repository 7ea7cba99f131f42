// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

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
