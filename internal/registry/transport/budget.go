// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/kubic-project/image-update-agent/agent/record"
)

// Pace returns the waits that hosts asked for and the rest of the budget. It does not include hosts that do not answer:
// after a restart, three more requests detect them.
func (c *Client) Pace() record.Pace { return c.pace.kept() }

// Resume restores a saved state. Later waits and requests stay.
func (c *Client) Resume(kept record.Pace) { c.pace.resume(kept) }

// TryAgain serves a person's request: each host in back-off because it did not answer, or asked to wait, may be asked
// once. The next such answer starts the wait again.
func (c *Client) TryAgain() { c.pace.tryAgain() }

func (p *pace) tryAgain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.hosts {
		s.open, s.wait = time.Time{}, record.Wait{}
	}
}

func (p *pace) kept() record.Pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	var kept record.Pace
	for host, s := range p.hosts {
		if !isWait(s.wait, now) {
			continue
		}
		if kept.Waits == nil {
			kept.Waits = map[string]record.Wait{}
		}
		kept.Waits[host] = record.Wait{Until: s.wait.Until.UTC(), Status: s.wait.Status}
	}
	if p.budget != nil {
		kept.Budget = left(p.budget, now)
	}
	return kept
}

func (p *pace) resume(kept record.Pace) {
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

// newBudget returns a full budget, which refills evenly.
func newBudget(perHour int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(float64(perHour)/time.Hour.Seconds()), perHour)
}

// left returns the budget for saving. It has whole requests, so the refilled part of one goes into the time: At is when
// exactly that many were left. It is zero for a full budget, so that the record of an idle node does not change.
func left(budget *rate.Limiter, now time.Time) record.Budget {
	tokens := budget.TokensAt(now)
	if tokens >= float64(budget.Burst()) {
		return record.Budget{}
	}
	whole := math.Floor(tokens + 1e-6) // a nanosecond more or less is not a request
	return record.Budget{
		PerHour: budget.Burst(), Remaining: int(whole),
		At: now.Add(-refill(budget, max(0, tokens-whole))).UTC(),
	}
}

// restored returns a saved budget; a clock that was set back refills nothing.
func restored(perHour int, kept record.Budget, now time.Time) *rate.Limiter {
	at := kept.At
	if at.After(now) {
		at = now
	}
	budget := newBudget(perHour)
	budget.AllowN(at, perHour-max(0, min(kept.Remaining, perHour)))
	return budget
}

// refill returns the time to refill a number of requests.
func refill(budget *rate.Limiter, requests float64) time.Duration {
	return time.Duration(math.Round(requests / float64(budget.Limit()) * float64(time.Second)))
}
