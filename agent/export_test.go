// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
)

// PlanBothWays returns the next cycle's plan twice: from the parsed pods in the cache, and without the cache.
func (a *Agent) PlanBothWays(ctx context.Context) (cached, anew plan.Plan, err error) {
	if cached, err = a.Plan(ctx, source.PollNone); err != nil {
		return cached, anew, err
	}
	a.nodes.Parsed = nil
	anew, err = a.Plan(ctx, source.PollNone)
	return cached, anew, err
}

// Arguments returns the next cycle's arguments of Decide.
func (a *Agent) Arguments(ctx context.Context) (node.Inventory, map[release.Question]source.Offer, record.Record, policy.Policy) {
	c, _ := a.begin(ctx, &Request{})
	inv, _ := c.observe(ctx)
	round, qs := c.round(inv)
	return inv, c.asker.Ask(ctx, round, qs, false), a.records.Record, a.Policy
}
