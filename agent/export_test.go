// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"
)

// PlanBothWays is what the next cycle would do, by the pods that are parsed already,
// and worked out from nothing.
func (a *Agent) PlanBothWays(ctx context.Context) (cached, anew Plan, err error) {
	if cached, err = a.Plan(ctx, PollNone); err != nil {
		return cached, anew, err
	}
	a.nodes.parsed = nil
	anew, err = a.Plan(ctx, PollNone)
	return cached, anew, err
}

// ParsedPods counts the pods that are kept from the last observation.
func (a *Agent) ParsedPods() int { return len(a.nodes.parsed) }

// Retries are the moments at which sources are asked again before the next poll.
func (a *Agent) Retries() []time.Time { return Retries(&a.records.Record, a.Now()) }

// DropFromRecord is Record.drop.
func DropFromRecord(r *Record, limit int) []Dropped { return r.drop(limit) }

// Arguments are what the next cycle would decide with.
func (a *Agent) Arguments(ctx context.Context) (Inventory, map[Question]Offer, Record, Policy) {
	c, _ := a.begin(ctx, errand{})
	inv, _ := c.observe(ctx)
	round, qs := c.round(inv)
	return inv, c.asker.Ask(ctx, round, qs, false), a.records.Record, a.Policy
}
