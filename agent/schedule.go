// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/source"
)

// shared returns the state that the loop shares with its cycles.
func (l *Loop) shared() shared {
	return shared{queue: l.queue, watched: &l.watched, timetable: l.times, progress: l.showProgress}
}

// setAgent replaces the agent whose cycles the loop runs.
func (l *Loop) setAgent(a *Agent, times *timetable) {
	times.policy = a.Policy
	if l.agent != nil {
		a.nodes.Missing = l.agent.nodes.Missing // containers stay overdue across a reload
	}
	l.agent, l.times = a, times
}

// runDue runs a cycle if one is due. Requests come first.
func (l *Loop) runDue(ctx context.Context, now time.Time) {
	if l.queue.contains(isRequest) {
		return
	}
	poll, due := source.PollNone, true
	if l.pending != nil {
		l.queue.resume()
	} else {
		poll, due = l.times.poll(now, source.Retries(&l.agent.records.Record, now))
	}
	if !due {
		return
	}
	l.times.observation = time.Time{} // the next observation follows the end of this cycle
	l.runBackground(ctx, poll)
	if poll == source.PollFailed {
		l.times.noRetryBefore = l.times.now().Add(retryPause)
	}
}

// watchEvents observes the node soon after followed containers start or end, or a new static pod starts.
func (l *Loop) watchEvents(ctx context.Context) (stop func()) {
	pods := l.agent.Pods
	return l.watched.WatchEvents(ctx, l.agent.Events, pods, func(ctx context.Context) {
		if l.watched.IsBusy() {
			l.observeBeside(ctx, pods)
		}
		l.queue.add(&task{verb: verbObserve, done: make(chan struct{}), do: func(ctx context.Context) error {
			l.runBackground(ctx, source.PollNone)
			return nil
		}})
	})
}

// observeBeside observes containers during a cycle, so that the status shows failures at once.
func (l *Loop) observeBeside(ctx context.Context, pods node.ContainerLister) {
	containers, _, err := pods.Containers(ctx)
	if err != nil {
		return // the next observation reports it
	}
	l.watched.Note(containers, time.Now().Round(0))
	l.correct()
}

// wait runs a task, or sleeps until something is due or requested; false when ctx ends.
func (l *Loop) wait(ctx context.Context) bool {
	l.notify.Heartbeat()
	if ctx.Err() != nil {
		return false
	}
	if t := l.queue.next(); t != nil {
		l.runTask(ctx, t)
		return true
	}
	if l.pending != nil {
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

// sleep returns the time until something is due.
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

// cycle runs a cycle and shows its status.
func (l *Loop) cycle(ctx context.Context, poll source.Poll) (cycleResult, error) {
	d, err := l.agent.cycle(ctx, l.shared(), purpose{poll: poll})
	if err == nil && d.results.hasTagMoved() {
		d, err = l.agent.cycle(ctx, l.shared(), purpose{poll: source.PollDue}) // stage and apply what the tag names now
	}
	l.showResult(d)
	return d, err
}

// showResult shows the status of a cycle that was not interrupted.
func (l *Loop) showResult(d cycleResult) {
	if !d.reported {
		return
	}
	if l.pending == nil && !l.queue.contains(isInterrupted) {
		l.suspended = nil
	}
	d.status.Interrupted = l.suspended
	if l.agent.Meter != nil {
		l.agent.Meter.CycleDone()
	}
	l.show(d.status)
}

// runBackground runs a cycle that no person waits for, and the pending one.
func (l *Loop) runBackground(ctx context.Context, poll source.Poll) {
	l.schedule(poll)
	poll, l.pending = *l.pending, nil
	_, err := l.cycle(ctx, poll)
	if intr, is := errors.AsType[*interruptedError](err); is {
		l.schedule(intr.rest)
		l.suspend(intr)
	}
}

// schedule adds a poll to the pending cycle.
func (l *Loop) schedule(poll source.Poll) {
	if l.pending != nil {
		poll = max(poll, *l.pending)
	}
	l.pending = &poll
}

// suspend shows that a request interrupted a cycle.
func (l *Loop) suspend(intr *interruptedError) {
	l.suspended = &intr.Interruption
	l.showInterrupted(l.suspended)
}

// runTask runs a task. An interrupted one returns to the queue.
func (l *Loop) runTask(ctx context.Context, t *task) {
	if t.interrupted {
		l.queue.resume()
		t.interrupted = false
	}
	err := t.do(ctx)
	if intr, is := errors.AsType[*interruptedError](err); is {
		t.interrupted = true
		l.queue.add(t)
		l.suspend(intr)
		return
	}
	close(t.done)
}

// scheduleRest schedules the remaining work of a request.
func (l *Loop) scheduleRest(d cycleResult) {
	if d.unfinished != nil {
		l.schedule(d.unfinished.rest)
	} else if d.results.hasDeferred() {
		l.schedule(source.PollNone)
	}
}
