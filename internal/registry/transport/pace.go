// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/distspec"
)

// When a host that does not answer is left alone, and for how long. Three failures are not an accident; a minute is
// longer than one round of questions waits for a dead host, and shorter than any back-off.
const (
	openAfter = 3
	openFor   = time.Minute
)

// maxPaced limits the known hosts, and maxHostName the length of a name: redirects and realms can name any. A DNS name
// has at most 253 bytes. An account consists of two names.
const (
	maxPaced    = 256
	maxHostName = 260
	maxAccount  = 2*maxHostName + 3
)

// pace decides whether a request may be sent now, by the earlier answers of the hosts. It is below everything that
// sends, so polls, pulls, token requests and the hops of redirects all obey it. Safe for concurrent use.
type pace struct {
	now func() time.Time

	mu     sync.Mutex
	hosts  map[string]*hostState // by route.account; hosts without a wait have no entry
	budget *rate.Limiter         // nil: there is none
}

// hostState is why a host may have to wait.
type hostState struct {
	wait record.Wait // requested by the host

	failures int       // consecutive ones: the circuit breaker
	open     time.Time // no requests until then
	status   int       // HTTP status of the last failure; 0 if there was no answer
	cause    string    // of the last failure
	err      error     // the last failure without an answer
	silent   bool      // the last failure was Silent
	inward   bool      // the last failure was ErrInward
}

func newPace(now func() time.Time, perHour int) *pace {
	p := &pace{now: now, hosts: map[string]*hostState{}}
	if perHour > 0 {
		p.budget = newBudget(perHour)
	}
	return p
}

// admit returns why a request must not be sent now; nil if it may, and then it is taken from the budget. Only the first
// request of a question is ever refused for lack of budget.
func (p *pace) admit(ctx context.Context, to route) *Held {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.held(to); h != nil || p.budget == nil {
		return h
	}
	now, begun := p.now(), purposeOf(ctx).begun
	if !p.budget.AllowN(now, 1) && begun != nil && !begun.Load() {
		return overBudget(p.budget, now)
	}
	if begun != nil {
		begun.Store(true)
	}
	return nil
}

// blocked is like admit, without the budget.
func (p *pace) blocked(to route) *Held {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held(to)
}

// held is blocked; the caller holds the lock.
func (p *pace) held(to route) *Held {
	now := p.now()
	for _, name := range []string{to.host, to.account()} {
		s := p.hosts[name]
		switch {
		case s == nil:
		case isWait(s.wait, now):
			return waiting(to, s)
		case now.Before(s.open):
			return failing(to, s)
		}
	}
	return nil
}

// isWait reports whether a wait has not ended. One longer than a host may ask for was recorded under another clock.
func isWait(w record.Wait, now time.Time) bool {
	return now.Before(w.Until) && w.Until.Sub(now) <= maxRetryAfter
}

// failed records that a host did not answer.
func (p *pace) failed(to route, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(to, 0, err.Error())
	_, silent := errors.AsType[*Silent](err)
	s := p.state(to.account())
	s.silent, s.inward = silent, errors.Is(err, ErrInward)
	if !errors.Is(err, io.EOF) { // a reader would see the end of the data
		s.err = err
	}
}

// count records a failure of a host; a failure of a redirect's target counts only for requests from the host that
// redirected, because a registry that names a host must not block it for others. The caller holds the lock.
func (p *pace) count(to route, status int, cause string) {
	s := p.state(to.account())
	s.failures++
	s.status, s.cause, s.err, s.silent, s.inward = status, outside.Text(cause), nil, false, false
	if s.failures >= openAfter {
		s.open = p.now().Add(openFor)
	}
}

// answered records an answer; Held: no more requests to the host for now. A wait counts for the host itself, whichever
// host led to it.
func (p *pace) answered(to route, resp *http.Response) *Held {
	p.mu.Lock()
	defer p.mu.Unlock()
	status, cause := resp.StatusCode, statusText(resp.StatusCode)
	switch status {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	default:
		p.recovered(to.account())
		return nil
	}
	now := p.now()
	if wait := (record.Wait{Until: retryAt(resp.Header, now), Status: status}); isWait(wait, now) {
		p.recovered(to.account())
		p.wait(to.host, wait, now)
		return &Held{Host: to.host, Led: to.isLed(), Status: status, Until: wait.Until.UTC(), text: cause}
	}
	if status != http.StatusTooManyRequests {
		p.count(to, status, cause)
		return nil
	}
	s := p.state(to.account())
	s.failures = max(s.failures, openAfter-1)
	p.count(to, status, cause)
	return &Held{Host: to.host, Led: to.isLed(), Status: status, text: cause}
}

// recovered records that a host answers. Its earlier wait still counts, because the answer may belong to an earlier
// request. The caller holds the lock.
func (p *pace) recovered(host string) {
	s := p.hosts[host]
	switch {
	case s == nil:
	case isWait(s.wait, p.now()):
		*s = hostState{wait: s.wait}
	default:
		delete(p.hosts, host)
	}
}

// wait keeps the later one of a host's waits. The caller holds the lock.
func (p *pace) wait(host string, wait record.Wait, now time.Time) {
	if s := p.state(host); wait.Until.After(s.wait.Until) || !isWait(s.wait, now) {
		s.wait = wait
	}
}

// state returns the entry of a host, and creates it if needed. If there are too many, a new one is dropped at once: the
// regular hosts come first, invented ones of redirects later. The caller holds the lock.
func (p *pace) state(host string) *hostState {
	if s := p.hosts[host]; s != nil {
		return s
	}
	s := &hostState{}
	if len(p.hosts) >= maxPaced {
		p.forget()
	}
	if len(p.hosts) < maxPaced && len(host) <= maxAccount {
		p.hosts[host] = s
	}
	return s
}

// forget drops the hosts whose wait is over. The caller holds the lock.
func (p *pace) forget() {
	now := p.now()
	for host, s := range p.hosts {
		if !isWait(s.wait, now) && !now.Before(s.open) {
			delete(p.hosts, host)
		}
	}
}

// TryAgain serves a person's request: each host in back-off because it did not answer, or asked to wait, may be asked
// once. The next such answer starts the wait again.
func (p *pace) TryAgain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.hosts {
		s.open, s.wait = time.Time{}, record.Wait{}
	}
}

// Pace returns the waits that hosts asked for and the rest of the budget. It does not include hosts that do not answer:
// after a restart, three more requests detect them.
func (p *pace) Pace() record.Pace {
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

// Resume restores a saved state. Later waits and requests stay.
func (p *pace) Resume(kept record.Pace) {
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

// Held is the error for a request that was not sent, or for the answer that starts a wait.
type Held struct {
	// Host is the host[:port] that waits or failed; empty if the budget is spent, and no host is asked.
	Host   string
	Led    bool      // Host is not the asked host
	Status int       // of the host's answer; 0 if there was none
	Until  time.Time // zero: unknown
	Unsent bool
	Silent bool // the host's last failure was Silent
	Inward bool // the host's last failure was ErrInward
	text   string
	err    error // the host's last failure; nil: none, or an answer
}

// Unwrap returns the failure for which the host is not asked: a certificate that was not verified for one image is the
// reason for all images after it.
func (h *Held) Unwrap() error { return h.err }

// Error has the end of the wait, and the reason.
func (h *Held) Error() string { return h.text }

// waiting returns the error for a host that asked to wait.
func waiting(to route, s *hostState) *Held {
	return &Held{
		Host: to.host, Led: to.isLed(), Status: s.wait.Status, Until: s.wait.Until.UTC(), Unsent: true,
		text: fmt.Sprintf("asked to wait until %s (%d)", roundUp(s.wait.Until).Format(time.RFC3339), s.wait.Status),
	}
}

// failing returns the error for a host with too many consecutive failures.
func failing(to route, s *hostState) *Held {
	return &Held{
		Host: to.host, Led: to.isLed(), Status: s.status, Unsent: true, Silent: s.silent, Inward: s.inward, err: s.err,
		text: fmt.Sprintf("not asked until %s: %s", roundUp(s.open).Format(time.RFC3339), s.cause),
	}
}

// overBudget returns the error for a question without budget.
func overBudget(budget *rate.Limiter, now time.Time) *Held {
	again := roundUp(now.Add(refill(budget, 1-budget.TokensAt(now))))
	return &Held{
		Unsent: true, Until: again,
		text: fmt.Sprintf("budget of %d requests an hour is used up until %s", budget.Burst(), again.Format(time.RFC3339)),
	}
}

// roundUp returns a time for people, never before the exact time.
func roundUp(t time.Time) time.Time {
	t = t.UTC()
	if second := t.Truncate(time.Second); !second.Equal(t) {
		return second.Add(time.Second)
	}
	return t
}

// retryAt returns the time in Retry-After; zero if the header is missing or invalid.
func retryAt(h http.Header, now time.Time) time.Time {
	return distspec.RetryAfter(h.Get("Retry-After"), now, maxRetryAfter)
}
