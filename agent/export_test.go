// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"
)

// PlanBothWays is what the next cycle would do, by what is remembered of the
// ones before, and worked out from nothing.
func (a *Agent) PlanBothWays(ctx context.Context) (remembered, anew Plan, err error) {
	if err := a.begin(ctx, PollNone); err != nil {
		return Plan{}, Plan{}, err
	}
	inv, err := a.inventory(ctx)
	if err != nil {
		return Plan{}, Plan{}, err
	}
	policy, now := a.Policy, a.Now()
	offers := a.offers(ctx, newInquiry(a, inv, PollNone), questions(survey(inv, policy), policy), false)
	remembered = Decide(inv, offers, a.record, policy, now)
	policy.memory, inv.views = memory{}, nil
	return remembered, Decide(inv, offers, a.record, policy, now), nil
}

// Remembered counts what the agent keeps of its cycles.
func (a *Agent) Remembered() int {
	m := &a.Policy.memory
	return m.pods.len() + m.renders.len() + m.references.len() + m.repositories.len() + m.rules.len()
}

func (m *memo[K, V]) len() int { return len(m.now) + len(m.before) }

// Retries are the moments at which sources are asked again before the next poll.
func (a *Agent) Retries() []time.Time { return a.retries() }

// DropFromRecord is Record.drop.
func DropFromRecord(r *Record, limit int) []Dropped { return r.drop(limit) }
