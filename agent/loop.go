// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// ErrEnded: the loop has ended and does nothing any more.
var ErrEnded = errors.New("the daemon is ending")

// Loop runs the cycles, one at a time: by the clock, when containers start or end, and
// when a person asks.
type Loop struct {
	scheduler
	ended chan struct{} // closed when Run returns
}

// NewLoop makes the loop of an agent. interval 0 turns polling off; wake bounds
// the sleep, so that a watchdog is served in time.
func NewLoop(a *Agent, n Notifier, interval, wake time.Duration, machineID string) *Loop {
	l := &Loop{ended: make(chan struct{})}
	l.wake, l.queue = wake, newQueue()
	l.board = board{
		notify: n, watched: &l.watched, listeners: map[int]func(status.Progress){}, changed: make(chan struct{}),
		now: func() time.Time { return l.times.now() },
	}
	l.setAgent(a, &timetable{clock: a.Now, interval: interval, machineID: machineID})
	l.lastReport = a.initialStatus()
	l.status = l.lastReport
	return l
}

// Run turns until ctx ends, and then returns nil: a step that has begun is
// finished or left whole. It is called once.
func (l *Loop) Run(ctx context.Context) error {
	defer close(l.ended)
	l.stopEvents = l.watchEvents(ctx)
	defer func() { l.stopEvents() }()
	l.watched.SetBusy(true)
	if err := l.agent.load(ctx, l.agent.Log); err != nil {
		l.agent.Log.Warn("record not read yet", "err", err) // the cycle reads it again, and says so
	}
	l.times.nextSlot(l.times.now())
	l.times.observation = l.times.now() // the node may have changed while we were off
	for {
		now := l.times.now()
		l.runDue(ctx, now)
		l.times.NextObservation(l.Status())
		if !l.wait(ctx) {
			return nil
		}
		if then := l.times.now(); then.Before(now) {
			l.times.clockWasSet(then)
		}
	}
}

// request has the loop's goroutine do a task, and waits for it.
func (l *Loop) request(ctx context.Context, onProgress func(status.Progress), t task) error {
	if onProgress != nil {
		defer l.Listen(onProgress)()
	}
	t.done = make(chan struct{})
	l.queue.add(&t)
	select {
	case <-t.done:
		return nil
	case <-l.ended:
	case <-ctx.Done():
		if l.queue.withdraw(&t) {
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
