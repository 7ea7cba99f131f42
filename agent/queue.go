// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// minUninterrupted is how long a resumed poll or staging runs before a request may interrupt it again, so that it
// finishes despite many requests. A request still begins within two seconds.
const minUninterrupted = time.Second

// interruptedError ends a cycle because of a person's request. The cycle is repeated afterwards; answers and pulled
// bytes are kept.
type interruptedError struct {
	status.Interruption
	rest source.Poll // the poll to repeat
}

func (i *interruptedError) Error() string { return i.Work + ": " + source.ErrPersonFirst.Error() }

func (i *interruptedError) Unwrap() error { return source.ErrPersonFirst }

// queue holds the requests that wait for the loop's goroutine, and interrupts what runs for one that is urgent.
type queue struct {
	added chan struct{} // signals new requests; capacity 1

	mu                 sync.Mutex
	requests           []*Request
	end                context.CancelCauseFunc // ends the running poll or staging; nil: nothing runs
	delayed            *time.Timer             // interrupts after the protected time
	uninterruptedUntil time.Time               // no interruption before that time
}

// add appends a request; a poll joins the one that waits already. An urgent one interrupts the running poll or staging.
func (q *queue) add(r *Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := slices.IndexFunc(q.requests, (*Request).isPoll); n >= 0 && r.isPoll() {
		waits := q.requests[n]
		waits.poll, waits.interrupted = max(waits.poll, r.poll), waits.interrupted || r.interrupted
		return
	}
	q.requests = append(q.requests, r)
	if r.urgent {
		q.interrupt()
	}
	select {
	case q.added <- struct{}{}:
	default:
	}
}

// withdraw removes a request; false: it has begun.
func (q *queue) withdraw(r *Request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := slices.Index(q.requests, r)
	if n < 0 || r.interrupted {
		return false
	}
	q.requests = slices.Delete(q.requests, n, n+1)
	if q.delayed != nil && !slices.ContainsFunc(q.requests, (*Request).isUrgent) {
		q.delayed.Stop()
		q.delayed = nil
	}
	return true
}

// next removes and returns the next request: urgent ones first, then the one that was interrupted last, then the other
// requests of people, then the poll; nil if there is none.
func (q *queue) next() *Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := slices.IndexFunc(q.requests, (*Request).isUrgent)
	for last := len(q.requests) - 1; n < 0 && last >= 0; last-- {
		if r := q.requests[last]; r.hasCaller() && r.interrupted {
			n = last
		}
	}
	if n < 0 {
		n = slices.IndexFunc(q.requests, (*Request).hasCaller)
	}
	return q.take(n)
}

// joinPoll removes and returns the poll that waits; nil if there is none. The request asks what that would have asked.
func (q *queue) joinPoll(r *Request) (joined *Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := slices.IndexFunc(q.requests, (*Request).isPoll)
	if n < 0 {
		return nil
	}
	joined = q.take(n)
	r.poll = max(r.poll, joined.poll)
	return joined
}

// take removes and returns the request at n, or the first if n is negative. The caller holds the lock.
func (q *queue) take(n int) *Request {
	if len(q.requests) == 0 {
		return nil
	}
	n = max(n, 0)
	r := q.requests[n]
	q.requests = slices.Delete(q.requests, n, n+1)
	return r
}

// urgentVerb returns the verb of the first urgent request; "" if there is none.
func (q *queue) urgentVerb() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := slices.IndexFunc(q.requests, (*Request).isUrgent); n >= 0 {
		return q.requests[n].verb
	}
	return ""
}

// contains reports whether a request that waits satisfies is.
func (q *queue) contains(is func(*Request) bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.requests, is)
}

// resume protects resumed work from interruption for minUninterrupted.
func (q *queue) resume() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.uninterruptedUntil = time.Now().Add(minUninterrupted)
}

// interruptible returns a context for a poll or staging. A person's request cancels it with
// ErrPersonFirst until end is called.
func (q *queue) interruptible(ctx context.Context) (work context.Context, end func()) {
	work, cancel := context.WithCancelCause(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.end = cancel
	if slices.ContainsFunc(q.requests, (*Request).isUrgent) {
		q.interrupt()
	}
	return work, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.delayed != nil {
			q.delayed.Stop()
		}
		q.end, q.delayed = nil, nil
		cancel(nil)
	}
}

// interrupt cancels the interruptible work, now or after its protected time. The caller holds
// the lock.
func (q *queue) interrupt() {
	end, wait := q.end, time.Until(q.uninterruptedUntil)
	switch {
	case end == nil || q.delayed != nil:
	case wait > 0:
		q.delayed = time.AfterFunc(wait, func() { end(source.ErrPersonFirst) })
	default:
		end(source.ErrPersonFirst)
	}
}

// interruption returns an interruptedError if a request canceled the work, else nil.
func (c *cycle) interruption(work context.Context, what string, rest source.Poll) error {
	if !errors.Is(context.Cause(work), source.ErrPersonFirst) {
		return nil
	}
	c.log.Info("interrupted, continues soon", "work", what, "for", c.agent.queue.urgentVerb())
	return c.newInterruption(what, rest)
}

func (c *cycle) newInterruption(what string, rest source.Poll) *interruptedError {
	return &interruptedError{
		status.Interruption{Work: what, For: c.agent.queue.urgentVerb(), At: c.agent.Now().UTC()}, rest,
	}
}
