// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/kubic-project/image-update-agent/agent"
)

// Pace is what hosts asked for and what is left of the budget: all that a
// restart must not undo. That a host brings no answers is not in it: after a
// restart, three more requests tell.
func (r *Registry) Pace() agent.Pace { return r.net.pace.kept() }

// Resume takes up what was kept. What the hosts asked for since, and what was
// spent since, stays.
func (r *Registry) Resume(kept agent.Pace) { r.net.pace.resume(kept) }

func (p *pace) kept() agent.Pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	var kept agent.Pace
	for host, m := range p.hosts {
		if !isWait(m.wait, now) {
			continue
		}
		if kept.Waits == nil {
			kept.Waits = map[string]agent.Wait{}
		}
		kept.Waits[host] = agent.Wait{Until: m.wait.Until.UTC(), Status: m.wait.Status}
	}
	if p.budget != nil {
		kept.Budget = left(p.budget, now)
	}
	return kept
}

func (p *pace) resume(kept agent.Pace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	for host, w := range kept.Waits {
		if isWait(w, now) {
			p.wait(host, w, now)
		}
	}
	if p.budget == nil || kept.Budget.PerHour <= 0 {
		return
	}
	if was := restored(p.budget.Burst(), kept.Budget, now); was.TokensAt(now) < p.budget.TokensAt(now) {
		p.budget = was
	}
}

// newBudget is full, and refills evenly.
func newBudget(perHour int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(float64(perHour)/time.Hour.Seconds()), perHour)
}

// left is the budget as it is kept. Requests are whole there, so the part of one
// that has refilled already goes into the time: At is when there were just so
// many left. It is zero for a full budget, so that the record of a node with
// nothing to ask does not change.
func left(budget *rate.Limiter, now time.Time) agent.Budget {
	tokens := budget.TokensAt(now)
	if tokens >= float64(budget.Burst()) {
		return agent.Budget{}
	}
	whole := math.Floor(tokens + 1e-6) // a nanosecond more or less is not a request
	return agent.Budget{
		PerHour: budget.Burst(), Left: int(whole),
		At: now.Add(-refill(budget, max(0, tokens-whole))).UTC(),
	}
}

// restored is a budget as it was kept; a clock that was set back refills nothing.
func restored(perHour int, kept agent.Budget, now time.Time) *rate.Limiter {
	at := kept.At
	if at.After(now) {
		at = now
	}
	budget := newBudget(perHour)
	budget.AllowN(at, perHour-max(0, min(kept.Left, perHour)))
	return budget
}

// refill is how long so many requests take to come back.
func refill(budget *rate.Limiter, requests float64) time.Duration {
	return time.Duration(math.Round(requests / float64(budget.Limit()) * float64(time.Second)))
}

// overBudget is why a question is not put.
func overBudget(budget *rate.Limiter, now time.Time) *held {
	again := ceil(now.Add(refill(budget, 1-budget.TokensAt(now))))
	return &held{
		unsent: true, until: again,
		text: fmt.Sprintf("budget of %d requests an hour is spent until %s", budget.Burst(), again.Format(time.RFC3339)),
	}
}

// isOverBudget tells that no host will be asked, whichever comes next.
func isOverBudget(err error) bool {
	h, ok := errors.AsType[*held](err)
	return ok && h.host == ""
}
