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

// minUninterrupted is how long a poll or a staging that was interrupted goes on before the
// next request interrupts it again: requests that follow one another without a pause
// do not keep it from ever ending. With the time that a pull needs to end it is less
// than the two seconds within which a request begins.
const minUninterrupted = time.Second

// interruptedError ends a cycle that a request of a person has interrupted. The cycle goes on
// after that, with the answers and the bytes that are there; a proof begins anew.
type interruptedError struct {
	status.Interruption
	rest source.Poll // what is left to ask
}

func (i *interruptedError) Error() string { return i.Work + ": " + source.ErrPersonFirst.Error() }

func (i *interruptedError) Unwrap() error { return source.ErrPersonFirst }

// verbObserve is the verb of the one task that no person asks for.
const verbObserve = "observe"

// task is what somebody asks of the loop.
type task struct {
	verb        string
	urgent      bool                        // it goes before polls and stagings
	do          func(context.Context) error // an interruption: it is to be done again
	done        chan struct{}
	interrupted bool // it was interrupted
}

// queue is what waits for the loop's goroutine. The nil queue is always empty.
type queue struct {
	added chan struct{} // has one element when something was added

	mu                 sync.Mutex
	tasks              []*task
	end                context.CancelCauseFunc // of the poll or staging that runs; nil: none does
	delayed            *time.Timer             // ends it later, for who waits already
	uninterruptedUntil time.Time               // until then nobody interrupts
}

func newQueue() *queue { return &queue{added: make(chan struct{}, 1)} }

// add lets a task wait. An urgent one interrupts the poll or the staging that runs.
func (q *queue) add(t *task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.put(t)
}

// addOnce is add, unless a task of that verb waits already.
func (q *queue) addOnce(t *task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !slices.ContainsFunc(q.tasks, func(other *task) bool { return other.verb == t.verb }) {
		q.put(t)
	}
}

func (q *queue) put(t *task) {
	q.tasks = append(q.tasks, t)
	if t.urgent {
		q.interrupt()
	}
	select {
	case q.added <- struct{}{}:
	default:
	}
}

// withdraw takes back a task, which interrupts nothing any more; false: it has begun.
func (q *queue) withdraw(t *task) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := slices.Index(q.tasks, t)
	if n < 0 || t.interrupted {
		return false
	}
	q.tasks = slices.Delete(q.tasks, n, n+1)
	if q.delayed != nil && !slices.ContainsFunc(q.tasks, isUrgent) {
		q.delayed.Stop()
		q.delayed = nil
	}
	return true
}

// next takes out the task whose turn it is: urgent ones in their order, then the one
// that was interrupted last, then the others; nil: there is none.
func (q *queue) next() *task {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := slices.IndexFunc(q.tasks, isUrgent)
	for last := len(q.tasks) - 1; n < 0 && last >= 0; last-- {
		if q.tasks[last].interrupted {
			n = last
		}
	}
	if n < 0 && len(q.tasks) > 0 {
		n = 0
	}
	if n < 0 {
		return nil
	}
	t := q.tasks[n]
	q.tasks = slices.Delete(q.tasks, n, n+1)
	return t
}

func isUrgent(t *task) bool { return t.urgent && !t.interrupted }

// urgentVerb is the verb of the request that goes before polls and stagings; "": none waits.
func (q *queue) urgentVerb() string {
	if q == nil {
		return ""
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := slices.IndexFunc(q.tasks, isUrgent); n >= 0 {
		return q.tasks[n].verb
	}
	return ""
}

// hasRequests reports whether a person's request waits, for the first time or after it
// was interrupted. Observations are none: there may always be one.
func (q *queue) hasRequests() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.tasks, func(t *task) bool { return t.verb != verbObserve })
}

// hasNoInterrupted reports whether nothing that was interrupted waits.
func (q *queue) hasNoInterrupted() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !slices.ContainsFunc(q.tasks, func(t *task) bool { return t.interrupted })
}

// resume begins the time in which work that was interrupted is left alone.
func (q *queue) resume() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.uninterruptedUntil = time.Now().Add(minUninterrupted)
}

// interruptible is ctx for a poll or a staging, until its end is called: it ends for a
// person's request, with ErrPersonFirst.
func (q *queue) interruptible(ctx context.Context) (work context.Context, end func()) {
	if q == nil {
		return ctx, func() {}
	}
	work, cancel := context.WithCancelCause(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.end = cancel
	if slices.ContainsFunc(q.tasks, isUrgent) {
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

// interrupt ends what may be interrupted, at once or when it has had its time. The
// caller holds the lock.
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

// interruption tells work that a person's request has interrupted from one that has
// ended otherwise; nil: it was not interrupted.
func (c *cycle) interruption(work context.Context, what string, rest source.Poll) error {
	if !errors.Is(context.Cause(work), source.ErrPersonFirst) {
		return nil
	}
	c.log.Info("interrupted, goes on soon", "work", what, "for", c.queue.urgentVerb())
	return c.newInterruption(what, rest)
}

func (c *cycle) newInterruption(what string, rest source.Poll) *interruptedError {
	return &interruptedError{status.Interruption{Work: what, For: c.queue.urgentVerb(), At: c.Now().UTC()}, rest}
}
