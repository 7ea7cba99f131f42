// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/kubic-project/image-update-agent/agent"
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

// pace decides whether a request may be sent now, by what the hosts have said so
// far. It sits below everything that sends, so polls, pulls, token requests and
// the hops of redirects all obey. Safe for concurrent use.
type pace struct {
	now func() time.Time

	mu     sync.Mutex
	hosts  map[string]*manner // by route.account; those with nothing to say are not there
	budget *rate.Limiter      // nil: there is none
}

// manner is how a host has behaved.
type manner struct {
	wait agent.Wait // it asked to be left alone

	failures int       // in a row: the circuit
	open     time.Time // it is left alone until then
	status   int       // HTTP status of the last failure; 0: no answer
	cause    string    // of the last failure
}

func newPace(now func() time.Time, perHour int) *pace {
	p := &pace{now: now, hosts: map[string]*manner{}}
	if perHour > 0 {
		p.budget = newBudget(perHour)
	}
	return p
}

// hostKey is the host[:port] of a URL, in one spelling only.
func hostKey(u *url.URL) string {
	name := strings.ToLower(u.Host)
	host, number, err := net.SplitHostPort(name)
	if err == nil && number == port(&url.URL{Scheme: u.Scheme}) {
		if strings.Contains(host, ":") {
			return "[" + host + "]" // IPv6
		}
		return host
	}
	return name
}

// admit says why a request must not be sent now; nil: it may, and is taken from
// the budget. Only the first request of a question is ever refused for that.
func (p *pace) admit(ctx context.Context, to route) *held {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.leaveAlone(to); h != nil {
		return h
	}
	if p.budget == nil {
		return nil
	}
	now := p.now()
	if !p.budget.AllowN(now, 1) && isFirst(ctx) {
		return overBudget(p.budget, now)
	}
	asked(ctx)
	return nil
}

// blocked is what admit says of the host alone.
func (p *pace) blocked(to route) *held {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leaveAlone(to)
}

// leaveAlone needs the lock.
func (p *pace) leaveAlone(to route) *held {
	now := p.now()
	for _, name := range []string{to.host, to.account()} {
		m := p.hosts[name]
		switch {
		case m == nil:
		case isWait(m.wait, now):
			return waiting(to.host, m)
		case now.Before(m.open):
			return resting(to.host, m)
		}
	}
	return nil
}

// isWait tells a wait that is under way. One beyond what a host may ask for was
// written down before the clock was set.
func isWait(w agent.Wait, now time.Time) bool {
	return now.Before(w.Until) && w.Until.Sub(now) <= maxRetryAfter
}

// failed notes that a host brought no answer at all.
func (p *pace) failed(to route, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(to, 0, err.Error())
}

// count notes a failure of a host; of one that another host led to, for requests
// that come from there alone: whoever names a host must not keep others from it. It
// needs the lock.
func (p *pace) count(to route, status int, cause string) {
	m := p.manner(to.account())
	m.failures++
	m.status, m.cause = status, outside.Text(cause)
	if m.failures >= openAfter {
		m.open = p.now().Add(openFor)
	}
}

// heard notes an answer. A host that has to be left alone is told of by what is
// returned; else nil. A wait is the host's own word, whoever led to it.
func (p *pace) heard(to route, resp *http.Response) *held {
	p.mu.Lock()
	defer p.mu.Unlock()
	status, cause := resp.StatusCode, statusError(resp.StatusCode).Error()
	switch status {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	default:
		p.well(to.account())
		return nil
	}
	now := p.now()
	wish := agent.Wait{Until: retryAt(resp.Header, now), Status: status}
	if isWait(wish, now) {
		p.well(to.account())
		p.wait(to.host, wish, now)
		return &held{host: to.host, status: status, until: wish.Until.UTC(), text: cause}
	}
	if status != http.StatusTooManyRequests {
		p.count(to, status, cause)
		return nil
	}
	m := p.manner(to.account())
	m.failures = max(m.failures, openAfter-1)
	p.count(to, status, cause)
	return &held{host: to.host, status: status, text: cause}
}

// well notes that a host answers. What it asked for before still counts: the
// answer may belong to an earlier request. It needs the lock.
func (p *pace) well(host string) {
	m := p.hosts[host]
	switch {
	case m == nil:
	case isWait(m.wait, p.now()):
		*m = manner{wait: m.wait}
	default:
		delete(p.hosts, host)
	}
}

// wait keeps the later of what a host asks for and what it asked for before. It
// needs the lock.
func (p *pace) wait(host string, wish agent.Wait, now time.Time) {
	if m := p.manner(host); wish.Until.After(m.wait.Until) || !isWait(m.wait, now) {
		m.wait = wish
	}
}

// manner finds or makes the entry of a host. Where there are too many, the new
// one is forgotten at once: the hosts that are asked every day come first, what
// redirects invent comes later. It needs the lock.
func (p *pace) manner(host string) *manner {
	if m := p.hosts[host]; m != nil {
		return m
	}
	m := &manner{}
	if len(p.hosts) >= maxPaced {
		p.forget()
	}
	if len(p.hosts) < maxPaced && len(host) <= maxAccount {
		p.hosts[host] = m
	}
	return m
}

// forget drops the hosts that may be asked again. It needs the lock.
func (p *pace) forget() {
	now := p.now()
	for host, m := range p.hosts {
		if !isWait(m.wait, now) && !now.Before(m.open) {
			delete(p.hosts, host)
		}
	}
}
