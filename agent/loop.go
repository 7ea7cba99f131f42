// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/agent/watch"
)

// ErrEnded: the loop has ended and does nothing any more.
var ErrEnded = errors.New("the daemon is ending")

// Loop runs the cycles, one at a time: by the clock, when containers start or end, and
// when a person asks.
type Loop struct {
	board
	wake    time.Duration // the longest sleep, for the watchdog; 0: until the next observation
	queue   *queue
	watched watch.Watched
	ended   chan struct{} // closed when Run returns

	// Only the loop's goroutine touches what follows.
	agent      *Agent
	times      *timetable
	stopEvents func()
	owed       *source.Poll // a cycle to do at once: one that was interrupted, or what a request has left
	cut        *status.Interruption
}

// NewLoop makes the loop of an agent. interval 0 turns polling off; wake bounds
// the sleep, so that a watchdog is served in time.
func NewLoop(a *Agent, n Notifier, interval, wake time.Duration, machineID string) *Loop {
	l := &Loop{wake: wake, queue: newQueue(), ended: make(chan struct{})}
	l.board = board{
		notify: n, watched: &l.watched, hearers: map[int]func(status.Progress){}, changed: make(chan struct{}),
		now: func() time.Time { return l.times.now() },
	}
	l.adopt(a, &timetable{clock: a.Now, interval: interval, machineID: machineID})
	l.found = a.starting()
	l.status = l.found
	return l
}

func (l *Loop) adopt(a *Agent, times *timetable) {
	times.policy = a.Policy
	a.Progress = l.progress
	a.watched, a.timetable, a.people = &l.watched, times, l.queue
	if l.agent != nil {
		a.nodes.Missing = l.agent.nodes.Missing // what was not started in time is not believed anew
	}
	l.agent, l.times = a, times
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
		l.turn(ctx, now)
		l.times.NextObservation(l.Status())
		if !l.wait(ctx) {
			return nil
		}
		if then := l.times.now(); then.Before(now) {
			l.times.clockWasSet(then)
		}
	}
}

// turn does a cycle where the clock wants one. Persons come before the clock.
func (l *Loop) turn(ctx context.Context, now time.Time) {
	switch {
	case l.queue.hasRequests():
		return
	case l.owed != nil:
		l.queue.resume()
		l.byClock(ctx, source.PollNone)
		return
	}
	poll, due := l.times.poll(now, source.Retries(&l.agent.records.Record, now))
	if !due {
		return
	}
	l.byClock(ctx, poll)
	if poll == source.PollFailed {
		l.times.noRetry = l.times.now().Add(retryPause)
	}
}

// watchEvents observes the node soon after a followed container has started or ended.
func (l *Loop) watchEvents(ctx context.Context) (stop func()) {
	pods := l.agent.Pods
	return l.watched.WatchEvents(ctx, l.agent.Events, func(ctx context.Context) {
		if l.watched.IsBusy() {
			l.observeBeside(ctx, pods)
		}
		l.queue.addOnce(&task{verb: verbObserve, done: make(chan struct{}), do: func(ctx context.Context) error {
			l.background(ctx, source.PollNone)
			return nil
		}})
	})
}

// observeBeside observes the containers beside a running cycle, so that the status shows
// at once what does not run.
func (l *Loop) observeBeside(ctx context.Context, pods node.ContainerLister) {
	containers, _, err := pods.Containers(ctx)
	if err != nil {
		return // the next observation says so
	}
	l.watched.Note(containers, time.Now().Round(0))
	l.correct()
}

// wait does what somebody asks, or sleeps until something is due or somebody does;
// false: the end.
func (l *Loop) wait(ctx context.Context) bool {
	l.notify.Turned()
	if ctx.Err() != nil {
		return false
	}
	if t := l.queue.next(); t != nil {
		l.work(ctx, t)
		return true
	}
	if l.owed != nil {
		return true
	}
	timer := time.NewTimer(max(l.sleep(), 0))
	defer timer.Stop()
	l.watched.SetBusy(false)
	defer l.watched.SetBusy(true)
	select {
	case <-ctx.Done():
		return false
	case <-l.queue.added:
	case <-timer.C:
	}
	return true
}

// sleep is how long nothing is due.
func (l *Loop) sleep() time.Duration {
	now := l.times.now()
	d := l.times.observation.Sub(now)
	if due := l.times.due(source.Retries(&l.agent.records.Record, now)); !due.IsZero() {
		d = min(d, due.Sub(now))
	}
	if l.wake > 0 {
		d = min(d, l.wake)
	}
	return d
}

// cycle does one cycle and shows its status.
func (l *Loop) cycle(ctx context.Context, poll source.Poll) (done, error) {
	d, err := l.agent.cycle(ctx, errand{poll: poll})
	if err == nil && d.results.hasTagMoved() {
		d, err = l.agent.cycle(ctx, errand{poll: source.PollDue}) // what the tag names now is staged, and applied
	}
	l.keep(d)
	return d, err
}

// keep shows the status of a cycle, if it has come to one.
func (l *Loop) keep(d done) {
	if !d.reported {
		return
	}
	if l.owed == nil && l.queue.owesNone() {
		l.cut = nil
	}
	d.status.Interrupted = l.cut
	if l.agent.Meter != nil {
		l.agent.Meter.Turned()
	}
	l.show(d.status)
}

// background does a cycle that nobody waits for, and with it what is owed.
func (l *Loop) background(ctx context.Context, poll source.Poll) {
	if l.owed != nil {
		poll = max(poll, *l.owed)
	}
	l.owed = nil
	_, err := l.cycle(ctx, poll)
	if cut, is := errors.AsType[*interruption](err); is {
		l.owe(cut.rest)
		l.suspend(cut)
	}
}

// byClock does a cycle that no event has caused. The pause before the next observation
// begins with its end.
func (l *Loop) byClock(ctx context.Context, poll source.Poll) {
	l.times.observation = time.Time{}
	l.background(ctx, poll)
}

func (l *Loop) owe(poll source.Poll) {
	if l.owed != nil {
		poll = max(poll, *l.owed)
	}
	l.owed = &poll
}

// suspend shows that something goes on after a person's request.
func (l *Loop) suspend(cut *interruption) {
	l.cut = &cut.Interruption
	l.interrupted(l.cut)
}

// work does what somebody asks. What was interrupted waits for its turn again.
func (l *Loop) work(ctx context.Context, t *task) {
	if t.cut {
		l.queue.resume()
		t.cut = false
	}
	err := t.do(ctx)
	if cut, is := errors.AsType[*interruption](err); is {
		t.cut = true
		l.queue.add(t)
		l.suspend(cut)
		return
	}
	close(t.done)
}

// request has the loop's goroutine do a task, and waits for it.
func (l *Loop) request(ctx context.Context, hear func(status.Progress), t task) error {
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
