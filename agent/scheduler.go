// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/agent/watch"
)

// scheduler does the cycles on the goroutine of Loop.Run, and what persons ask between
// them.
type scheduler struct {
	board
	wake    time.Duration // the longest sleep, for the watchdog; 0: until the next observation
	queue   *queue
	watched watch.Watched

	// Only the loop's goroutine touches what follows.
	agent      *Agent
	times      *timetable
	stopEvents func()
	owed       *source.Poll // a cycle to do at once: one that was interrupted, or what a request has left
	cut        *status.Interruption
}

func (l *scheduler) adopt(a *Agent, times *timetable) {
	times.policy = a.Policy
	a.Progress = l.progress
	a.watched, a.timetable, a.queue = &l.watched, times, l.queue
	if l.agent != nil {
		a.nodes.Missing = l.agent.nodes.Missing // what was not started in time is not believed anew
	}
	l.agent, l.times = a, times
}

// turn does a cycle where the clock wants one. Persons come before the clock.
func (l *scheduler) turn(ctx context.Context, now time.Time) {
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
func (l *scheduler) watchEvents(ctx context.Context) (stop func()) {
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
func (l *scheduler) observeBeside(ctx context.Context, pods node.ContainerLister) {
	containers, _, err := pods.Containers(ctx)
	if err != nil {
		return // the next observation says so
	}
	l.watched.Note(containers, time.Now().Round(0))
	l.correct()
}

// wait does what somebody asks, or sleeps until something is due or somebody does;
// false: the end.
func (l *scheduler) wait(ctx context.Context) bool {
	l.notify.Heartbeat()
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
func (l *scheduler) sleep() time.Duration {
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
func (l *scheduler) cycle(ctx context.Context, poll source.Poll) (done, error) {
	d, err := l.agent.cycle(ctx, errand{poll: poll})
	if err == nil && d.results.hasTagMoved() {
		d, err = l.agent.cycle(ctx, errand{poll: source.PollDue}) // what the tag names now is staged, and applied
	}
	l.keep(d)
	return d, err
}

// keep shows the status of a cycle, if it has come to one.
func (l *scheduler) keep(d done) {
	if !d.reported {
		return
	}
	if l.owed == nil && l.queue.owesNone() {
		l.cut = nil
	}
	d.status.Interrupted = l.cut
	if l.agent.Meter != nil {
		l.agent.Meter.CycleDone()
	}
	l.show(d.status)
}

// background does a cycle that nobody waits for, and with it what is owed.
func (l *scheduler) background(ctx context.Context, poll source.Poll) {
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
func (l *scheduler) byClock(ctx context.Context, poll source.Poll) {
	l.times.observation = time.Time{}
	l.background(ctx, poll)
}

func (l *scheduler) owe(poll source.Poll) {
	if l.owed != nil {
		poll = max(poll, *l.owed)
	}
	l.owed = &poll
}

// suspend shows that something goes on after a person's request.
func (l *scheduler) suspend(cut *interruption) {
	l.cut = &cut.Interruption
	l.interrupted(l.cut)
}

// work does what somebody asks. What was interrupted waits for its turn again.
func (l *scheduler) work(ctx context.Context, t *task) {
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

// oweRest goes on with what a request has left.
func (l *scheduler) oweRest(d done) {
	if d.unfinished != nil {
		l.owe(d.unfinished.rest)
	} else if d.results.hasDeferred() {
		l.owe(source.PollNone)
	}
}
