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
	a.parsed = nil
	anew, err = a.Plan(ctx, PollNone)
	return cached, anew, err
}

// ParsedPods counts the pods that are kept from the last observation.
func (a *Agent) ParsedPods() int { return len(a.parsed) }

// Retries are the moments at which sources are asked again before the next poll.
func (a *Agent) Retries() []time.Time { return a.retries() }

// DropFromRecord is Record.drop.
func DropFromRecord(r *Record, limit int) []Dropped { return r.drop(limit) }

// Arguments are what the next cycle would decide with.
func (a *Agent) Arguments(ctx context.Context) (Inventory, map[Question]Offer, Record, Policy) {
	_ = a.begin(ctx, PollNone)
	inv, _ := a.inventory(ctx)
	views := survey(inv, a.record.Overrides, a.Policy)
	return inv, a.offers(ctx, newInquiry(a, inv, views, PollNone), questions(views, a.Policy), false), a.record, a.Policy
}
