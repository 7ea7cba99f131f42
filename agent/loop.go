// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/agent/watch"
)

// ErrEnded is returned for requests after the end of Run.
var ErrEnded = errors.New("the daemon is stopping")

// Loop runs cycles and requests, one at a time: by the clock, on container events and on people's requests.
type Loop struct {
	board
	wake    time.Duration // the longest sleep, for the watchdog; 0: unlimited
	queue   *queue        // of requests
	watched watch.Watched // followed containers
	ended   chan struct{} // closed when Run returns

	// Only the loop's goroutine uses the fields below.
	agent      *Agent
	times      *timetable // of polls and observations
	stopEvents func()
	pending    *source.Poll // a cycle to run at once: an interrupted one, or the rest of a request
	suspended  *status.Interruption
}

// NewLoop returns the loop of an agent. interval 0 disables polls; wake limits the sleep, for the watchdog.
func NewLoop(a *Agent, n Notifier, interval, wake time.Duration, machineID string) *Loop {
	l := &Loop{wake: wake, queue: &queue{added: make(chan struct{}, 1)}, ended: make(chan struct{})}
	l.board = board{
		notify: n, watched: &l.watched, listeners: map[int]func(status.Progress){}, changed: make(chan struct{}),
		now: func() time.Time { return l.times.now() },
	}
	l.setAgent(a, &timetable{clock: a.Now, interval: interval, machineID: machineID})
	l.lastReport = a.initialStatus(l.shared())
	l.status = l.lastReport
	return l
}

// Run runs until ctx ends, and then returns nil. A step that began is finished or leaves the
// node unchanged. Call it once.
func (l *Loop) Run(ctx context.Context) error {
	defer close(l.ended)
	l.stopEvents = l.watchEvents(ctx)
	defer func() { l.stopEvents() }()
	l.watched.SetBusy(true)
	if err := l.agent.load(ctx, l.agent.Log); err != nil {
		l.agent.Log.Warn("cannot read the record yet", "err", err) // the next cycle retries
	}
	l.times.nextSlot(l.times.now())
	l.times.observation = l.times.now() // the node may have changed
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

// request runs a task on the loop's goroutine and waits for it.
func (l *Loop) request(ctx context.Context, onProgress func(status.Progress), t task) error {
	if onProgress != nil {
		defer l.Listen(onProgress)()
	}
	t.done = make(chan struct{})
	l.queue.add(&t)
	select {
	case <-t.done:
	case <-l.ended:
	case <-ctx.Done():
		if l.queue.withdraw(&t) {
			return fmt.Errorf("%w: %w", ErrCanceled, ctx.Err())
		}
		if t.caller != nil && t.caller.leave() {
			return errLeft // what has begun goes on
		}
		select { // a task that began is finished without its caller
		case <-t.done:
		case <-l.ended:
		}
	}
	select {
	case <-t.done: // also if the loop ended with it
		return nil
	default:
		return ErrEnded
	}
}
