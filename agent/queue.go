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

// verbObserve is the verb of tasks that no person requested.
const verbObserve = "observe"

// task is a request to the loop's goroutine.
type task struct {
	verb        string
	urgent      bool                        // interrupts polls and stagings
	do          func(context.Context) error // repeated after an interruptedError
	done        chan struct{}
	interrupted bool
	caller      *caller // nil: it never leaves
}

// queue holds the tasks for the loop's goroutine. A nil queue is empty.
type queue struct {
	added chan struct{} // signals new tasks; capacity 1

	mu                 sync.Mutex
	tasks              []*task
	end                context.CancelCauseFunc // ends the running poll or staging; nil: nothing runs
	delayed            *time.Timer             // interrupts after the protected time
	uninterruptedUntil time.Time               // no interruption before that time
}

// add appends a task, except a second observation. An urgent task interrupts the running poll
// or staging.
func (q *queue) add(t *task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	isObserve := func(t *task) bool { return t.verb == verbObserve }
	if isObserve(t) && slices.ContainsFunc(q.tasks, isObserve) {
		return
	}
	q.tasks = append(q.tasks, t)
	if t.urgent {
		q.interrupt()
	}
	select {
	case q.added <- struct{}{}:
	default:
	}
}

// withdraw removes a task; false: it has begun.
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

// next removes and returns the next task: urgent ones first, then the one that was interrupted last, then the others;
// nil if there is none.
func (q *queue) next() *task {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.tasks) == 0 {
		return nil
	}
	n := slices.IndexFunc(q.tasks, isUrgent)
	for last := len(q.tasks) - 1; n < 0 && last >= 0; last-- {
		if q.tasks[last].interrupted {
			n = last
		}
	}
	n = max(n, 0)
	t := q.tasks[n]
	q.tasks = slices.Delete(q.tasks, n, n+1)
	return t
}

func isUrgent(t *task) bool { return t.urgent && !t.interrupted }

func isInterrupted(t *task) bool { return t.interrupted }

func isRequest(t *task) bool { return t.verb != verbObserve }

// urgentVerb returns the verb of the first urgent request; "" if there is none.
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

// contains reports whether a task in the queue satisfies is.
func (q *queue) contains(is func(*task) bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.tasks, is)
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
	c.log.Info("interrupted, continues soon", "work", what, "for", c.loop.queue.urgentVerb())
	return c.newInterruption(what, rest)
}

func (c *cycle) newInterruption(what string, rest source.Poll) *interruptedError {
	return &interruptedError{
		status.Interruption{Work: what, For: c.loop.queue.urgentVerb(), At: c.agent.Now().UTC()}, rest,
	}
}
