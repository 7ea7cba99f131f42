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

// scheduler runs cycles and tasks on the goroutine of Loop.Run.
type scheduler struct {
	board
	wake    time.Duration // the longest sleep, for the watchdog; 0: unbounded
	queue   *queue
	watched watch.Watched

	// Only the loop's goroutine uses the fields below.
	agent      *Agent
	times      *timetable
	stopEvents func()
	pending    *source.Poll // a cycle to run at once: an interrupted one, or the rest of a request
	suspended  *status.Interruption
}

// setAgent connects an agent with the loop.
func (s *scheduler) setAgent(a *Agent, times *timetable) {
	times.policy = a.Policy
	a.Progress = s.showProgress
	a.watched, a.timetable, a.queue = &s.watched, times, s.queue
	if s.agent != nil {
		a.nodes.Missing = s.agent.nodes.Missing // containers stay overdue over a reload
	}
	s.agent, s.times = a, times
}

// runDue runs a cycle if one is due. Requests go first.
func (s *scheduler) runDue(ctx context.Context, now time.Time) {
	if s.queue.contains(isRequest) {
		return
	}
	poll, due := source.PollNone, true
	if s.pending != nil {
		s.queue.resume()
	} else {
		poll, due = s.times.poll(now, source.Retries(&s.agent.records.Record, now))
	}
	if !due {
		return
	}
	s.times.observation = time.Time{} // the next one follows after the end of this cycle
	s.runBackground(ctx, poll)
	if poll == source.PollFailed {
		s.times.noRetryBefore = s.times.now().Add(retryPause)
	}
}

// watchEvents observes the node soon after followed containers start or end, or a new static pod starts.
func (s *scheduler) watchEvents(ctx context.Context) (stop func()) {
	pods := s.agent.Pods
	return s.watched.WatchEvents(ctx, s.agent.Events, pods, func(ctx context.Context) {
		if s.watched.IsBusy() {
			s.observeBeside(ctx, pods)
		}
		s.queue.add(&task{verb: verbObserve, done: make(chan struct{}), do: func(ctx context.Context) error {
			s.runBackground(ctx, source.PollNone)
			return nil
		}})
	})
}

// observeBeside observes containers during a cycle, so that the status shows failures at once.
func (s *scheduler) observeBeside(ctx context.Context, pods node.ContainerLister) {
	containers, _, err := pods.Containers(ctx)
	if err != nil {
		return // the next observation reports it
	}
	s.watched.Note(containers, time.Now().Round(0))
	s.correct()
}

// wait runs a task, or sleeps until something is due or requested; false: the end.
func (s *scheduler) wait(ctx context.Context) bool {
	s.notify.Heartbeat()
	if ctx.Err() != nil {
		return false
	}
	if t := s.queue.next(); t != nil {
		s.runTask(ctx, t)
		return true
	}
	if s.pending != nil {
		return true
	}
	timer := time.NewTimer(max(s.sleep(), 0))
	defer timer.Stop()
	s.watched.SetBusy(false)
	defer s.watched.SetBusy(true)
	select {
	case <-ctx.Done():
		return false
	case <-s.queue.added:
	case <-timer.C:
	}
	return true
}

// sleep returns the time until something is due.
func (s *scheduler) sleep() time.Duration {
	now := s.times.now()
	d := s.times.observation.Sub(now)
	if due := s.times.due(source.Retries(&s.agent.records.Record, now)); !due.IsZero() {
		d = min(d, due.Sub(now))
	}
	if s.wake > 0 {
		d = min(d, s.wake)
	}
	return d
}

// cycle runs a cycle and shows its status.
func (s *scheduler) cycle(ctx context.Context, poll source.Poll) (cycleResult, error) {
	d, err := s.agent.cycle(ctx, purpose{poll: poll})
	if err == nil && d.results.hasTagMoved() {
		d, err = s.agent.cycle(ctx, purpose{poll: source.PollDue}) // stage and apply what the tag names now
	}
	s.showResult(d)
	return d, err
}

// showResult shows the status of a cycle that was not interrupted.
func (s *scheduler) showResult(d cycleResult) {
	if !d.reported {
		return
	}
	if s.pending == nil && !s.queue.contains(isInterrupted) {
		s.suspended = nil
	}
	d.status.Interrupted = s.suspended
	if s.agent.Meter != nil {
		s.agent.Meter.CycleDone()
	}
	s.show(d.status)
}

// runBackground runs a cycle that no person waits for, and what is pending.
func (s *scheduler) runBackground(ctx context.Context, poll source.Poll) {
	s.schedule(poll)
	poll, s.pending = *s.pending, nil
	_, err := s.cycle(ctx, poll)
	if intr, is := errors.AsType[*interruptedError](err); is {
		s.schedule(intr.rest)
		s.suspend(intr)
	}
}

// schedule adds a poll to the pending cycle.
func (s *scheduler) schedule(poll source.Poll) {
	if s.pending != nil {
		poll = max(poll, *s.pending)
	}
	s.pending = &poll
}

// suspend shows that a request interrupted a cycle.
func (s *scheduler) suspend(intr *interruptedError) {
	s.suspended = &intr.Interruption
	s.showInterrupted(s.suspended)
}

// runTask runs a task. An interrupted one returns to the queue.
func (s *scheduler) runTask(ctx context.Context, t *task) {
	if t.interrupted {
		s.queue.resume()
		t.interrupted = false
	}
	err := t.do(ctx)
	if intr, is := errors.AsType[*interruptedError](err); is {
		t.interrupted = true
		s.queue.add(t)
		s.suspend(intr)
		return
	}
	close(t.done)
}

// scheduleRest schedules what a request left.
func (s *scheduler) scheduleRest(d cycleResult) {
	if d.unfinished != nil {
		s.schedule(d.unfinished.rest)
	} else if d.results.hasDeferred() {
		s.schedule(source.PollNone)
	}
}
