// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// When a host that brings no answers is left alone, and for how long. Three are
// no accident any more; a minute is longer than one round of questions waits for
// a dead host, and shorter than any back-off.
const (
	openAfter = 3
	openFor   = time.Minute
)

// maxPaced bounds the hosts that are kept, and maxHostName a name among them:
// redirects and realms can name any. A name in the DNS has at most 253 bytes. An
// account has the names of two.
const (
	maxPaced    = 256
	maxHostName = 260
	maxAccount  = 2*maxHostName + 3
)

// pace decides whether a request may be sent now, by the answers of the hosts so
// far. It sits below everything that sends, so polls, pulls, token requests and
// the hops of redirects all obey. Safe for concurrent use.
type pace struct {
	now func() time.Time

	mu     sync.Mutex
	hosts  map[string]*hostState // by route.account; those that may be asked have none
	budget *rate.Limiter         // nil: there is none
}

// hostState is why a host may have to wait.
type hostState struct {
	wait record.Wait // it asked for that

	failures int       // in a row: the circuit
	open     time.Time // it is left alone until then
	status   int       // HTTP status of the last failure; 0: no answer
	cause    string    // of the last failure
	silent   bool      // the last failure was a Silent
	inward   bool      // the last failure was ErrInward
}

func newPace(now func() time.Time, perHour int) *pace {
	p := &pace{now: now, hosts: map[string]*hostState{}}
	if perHour > 0 {
		p.budget = newBudget(perHour)
	}
	return p
}

// admit returns why a request must not be sent now; nil: it may, and is taken from
// the budget. Only the first request of a question is ever refused for that.
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

// blocked is admit without the budget.
func (p *pace) blocked(to route) *Held {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held(to)
}

// held needs the lock.
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

// isWait reports a wait that is under way. One beyond what a host may ask for was
// written down before the clock was set.
func isWait(w record.Wait, now time.Time) bool {
	return now.Before(w.Until) && w.Until.Sub(now) <= maxRetryAfter
}

// failed notes that a host brought no answer at all.
func (p *pace) failed(to route, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(to, 0, err.Error())
	_, silent := errors.AsType[*Silent](err)
	s := p.state(to.account())
	s.silent, s.inward = silent, errors.Is(err, ErrInward)
}

// count notes a failure of a host; of one that another host led to, for requests
// that come from there alone: a registry that names a host must not keep others from it. It
// needs the lock.
func (p *pace) count(to route, status int, cause string) {
	s := p.state(to.account())
	s.failures++
	s.status, s.cause, s.silent, s.inward = status, outside.Text(cause), false, false
	if s.failures >= openAfter {
		s.open = p.now().Add(openFor)
	}
}

// answered notes an answer; Held: nothing more is sent to the host for now. A wait is
// the host's own, whichever host led to it.
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
	if wait := (record.Wait{Until: RetryAt(resp.Header, now), Status: status}); isWait(wait, now) {
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

// recovered notes that a host answers. What it asked for before still counts: the
// answer may belong to an earlier request. It needs the lock.
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

// wait keeps the later of what a host asks for and what it asked for before. It
// needs the lock.
func (p *pace) wait(host string, wait record.Wait, now time.Time) {
	if s := p.state(host); wait.Until.After(s.wait.Until) || !isWait(s.wait, now) {
		s.wait = wait
	}
}

// state finds or makes the entry of a host. Where there are too many, the new
// one is forgotten at once: the hosts that are asked every day come first, what
// redirects invent comes later. It needs the lock.
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

// forget drops the hosts that may be asked again. It needs the lock.
func (p *pace) forget() {
	now := p.now()
	for host, s := range p.hosts {
		if !isWait(s.wait, now) && !now.Before(s.open) {
			delete(p.hosts, host)
		}
	}
}
