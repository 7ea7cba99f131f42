// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// background does a cycle that nobody waits for, and with it what is owed.
func (l *Loop) background(ctx context.Context, poll Poll) {
	if l.owed != nil {
		poll = max(poll, *l.owed)
	}
	l.owed = nil
	_, err := l.turn(ctx, poll)
	if cut, is := errors.AsType[*Interruption](err); is {
		l.owe(cut.rest)
		l.interrupted(cut)
	}
}

// byClock does a cycle that no event has caused. The pause before the next observation
// begins with its end.
func (l *Loop) byClock(ctx context.Context, poll Poll) {
	l.look = time.Time{}
	l.background(ctx, poll)
}

func (l *Loop) owe(poll Poll) {
	if l.owed != nil {
		poll = max(poll, *l.owed)
	}
	l.owed = &poll
}

// work does what somebody asks. What was interrupted waits for its turn again.
func (l *Loop) work(ctx context.Context, t *task) {
	if t.cut {
		l.queue.resume()
		t.cut = false
	}
	err := t.do(ctx)
	if cut, is := errors.AsType[*Interruption](err); is {
		t.cut = true
		l.queue.add(t)
		l.interrupted(cut)
		return
	}
	if left := l.agent.takeLeft(); left != nil {
		l.owe(left.rest)
	}
	close(t.done)
}

// interrupted has the status say that something goes on after a person's request.
func (l *Loop) interrupted(cut *Interruption) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	l.status.Interrupted = cut
	l.status.Progress, l.status.Pulls = nil, nil
	l.announceChange()
}

// run has the loop's goroutine do what t says, and waits for it.
func (l *Loop) run(ctx context.Context, hear func(Progress), t task) error {
	if hear != nil {
		defer l.Listen(hear)()
	}
	t.done = make(chan struct{})
	l.queue.add(&t)
	select {
	case <-t.done:
		return nil
	case <-l.ended:
	case <-ctx.Done():
		if l.queue.leave(&t) {
			return fmt.Errorf("wait for the running cycle: %w", ctx.Err())
		}
	}
	select { // what has begun goes on if the caller hangs up; it is short or worth it
	case <-t.done:
		return nil
	case <-l.ended:
	}
	select {
	case <-t.done: // with its end
		return nil
	default:
		return ErrEnded
	}
}
