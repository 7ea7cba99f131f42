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

// Loop runs requests, one at a time: of the clock, of container events, and of people.
type Loop struct {
	board
	wake    time.Duration // the longest sleep, for the watchdog; 0: unlimited
	queue   *queue
	watched watch.Watched // followed containers
	ended   chan struct{} // closed when Run returns

	// Only the loop's goroutine uses the fields below.
	agent      *Agent
	times      *timetable // of polls and observations
	stopEvents func()
	suspended  *status.Interruption // of a request that waits to be repeated
}

// NewLoop returns the loop of an agent. interval 0 disables polls; wake limits the sleep, for the watchdog.
func NewLoop(a *Agent, n Notifier, interval, wake time.Duration, machineID string) *Loop {
	l := &Loop{wake: wake, queue: &queue{added: make(chan struct{}, 1)}, ended: make(chan struct{})}
	l.board = board{
		notify: n, watched: &l.watched, listeners: map[int]func(status.Progress){}, changed: make(chan struct{}),
		now: func() time.Time { return l.times.now() },
	}
	l.setAgent(a, &timetable{clock: a.Now, interval: interval, machineID: machineID})
	l.lastReport = a.initialStatus()
	l.status = l.lastReport
	return l
}

// setAgent replaces the agent whose cycles the loop runs.
func (l *Loop) setAgent(a *Agent, times *timetable) {
	times.policy = a.Policy
	if l.agent != nil {
		a.nodes.Missing = l.agent.nodes.Missing // containers stay overdue across a reload
	}
	a.queue, a.watched, a.timetable, a.Progress = l.queue, &l.watched, times, l.showProgress
	l.agent, l.times = a, times
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
	for ctx.Err() == nil {
		l.notify.Heartbeat()
		now := l.times.now()
		if !l.queue.contains((*Request).hasCaller) { // people first
			if poll, due := l.times.poll(now, source.Retries(&l.agent.records.Record, now)); due {
				l.queue.add(l.newPoll(poll))
			}
		}
		if r := l.queue.next(); r != nil {
			l.run(ctx, r)
		} else {
			l.sleep(ctx)
		}
		l.times.NextObservation(l.Status())
		if then := l.times.now(); then.Before(now) {
			l.times.clockWasSet(then)
		}
	}
	return nil
}

// sleep sleeps until something is due or requested.
func (l *Loop) sleep(ctx context.Context) {
	now := l.times.now()
	d := l.times.observation.Sub(now)
	if due := l.times.due(source.Retries(&l.agent.records.Record, now)); !due.IsZero() {
		d = min(d, due.Sub(now))
	}
	if l.wake > 0 {
		d = min(d, l.wake)
	}
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	l.watched.SetBusy(false)
	defer l.watched.SetBusy(true)
	select {
	case <-ctx.Done():
	case <-l.queue.added:
	case <-timer.C:
	}
}

// newPoll returns a poll; with PollNone, an observation. A reload may replace the agent before it runs.
func (l *Loop) newPoll(poll source.Poll) *Request {
	r := &Request{poll: poll, done: make(chan struct{})}
	r.do = func(ctx context.Context) (cycleResult, error) { return l.poll(ctx, r) }
	return r
}

// poll runs the cycle of a poll or a check.
func (l *Loop) poll(ctx context.Context, r *Request) (cycleResult, error) {
	if r.isPoll() {
		l.times.observation = time.Time{} // the next observation follows the end of this cycle
	}
	before := l.agent.records.Record.LastCheck
	d, err := l.agent.cycle(ctx, r)
	if err != nil && r.poll == source.PollDue && d.reported && l.agent.records.Record.LastCheck.Equal(before) {
		l.times.repeatSlot() // the node could not be observed, and no source was asked
	}
	if err == nil && d.results.hasTagMoved() {
		l.showResult(d)                                             // the applies have ended
		d, err = l.agent.cycle(ctx, &Request{poll: source.PollDue}) // stage and apply what the tag names now
	}
	if r.poll == source.PollFailed {
		l.times.noRetryBefore = l.times.now().Add(retryPause)
	}
	return d, err
}

// run runs a request and shows the status afterwards. If another one interrupts it, it returns to the queue.
func (l *Loop) run(ctx context.Context, r *Request) {
	if r.interrupted {
		l.queue.resume()
		r.interrupted = false
	}
	if r.doing != "" {
		l.showApplying(r.doing, r.which)
	}
	d, err := r.do(ctx)
	interrupted, is := errors.AsType[*interruptedError](err)
	if r.doing != "" && !d.reported && !is {
		d, _ = l.agent.cycle(ctx, &Request{urgent: true}) // publish the unchanged state
	}
	if r.doing != "" && !d.reported { // interrupted, or the daemon ends
		d.status, d.reported = l.lastReport, true
	}
	l.showResult(d)
	l.scheduleRest(d)
	if is {
		r.poll, r.interrupted = interrupted.rest, true
		l.queue.add(r)
		l.suspended = &interrupted.Interruption
		l.showInterrupted(l.suspended)
		return
	}
	r.status, r.err = d.status, err
	close(r.done)
}

// showResult shows the status of a cycle that was not interrupted.
func (l *Loop) showResult(d cycleResult) {
	if !d.reported {
		return
	}
	if !l.queue.contains((*Request).isInterrupted) {
		l.suspended = nil
	}
	d.status.Interrupted = l.suspended
	if l.agent.Meter != nil {
		l.agent.Meter.CycleDone()
	}
	l.show(d.status)
}

// scheduleRest schedules the remaining work of a request, as if another one had interrupted it.
func (l *Loop) scheduleRest(d cycleResult) {
	poll := source.PollNone
	if d.unfinished != nil {
		poll = d.unfinished.rest
	} else if !d.results.hasDeferred() {
		return
	}
	rest := l.newPoll(poll)
	rest.interrupted = true
	l.queue.add(rest)
}

// request has a request run on the loop's goroutine, and waits for it. If its caller leaves after a restart has begun,
// the request continues, and request returns errLeft.
func (l *Loop) request(ctx context.Context, r *Request) error {
	if r.progress != nil {
		defer l.Listen(r.progress)()
	}
	l.queue.add(r)
	select {
	case <-r.done:
	case <-l.ended:
	case <-ctx.Done():
		if l.queue.withdraw(r) {
			return fmt.Errorf("%w: %w", ErrCanceled, ctx.Err())
		}
		if r.leave() {
			return errLeft // what has begun goes on
		}
		select { // a request that began is finished without its caller
		case <-r.done:
		case <-l.ended:
		}
	}
	select {
	case <-r.done: // also if the loop ended with it
		return r.err
	default:
		return ErrEnded
	}
}

// Check polls everything now and returns the status.
func (l *Loop) Check(ctx context.Context, onProgress func(status.Progress)) (status.Status, error) {
	r := newRequest(ctx, "check", onProgress)
	r.urgent, r.poll = false, source.PollAll
	r.do = func(ctx context.Context) (cycleResult, error) {
		joined := l.queue.joinPoll(r)
		d, err := l.poll(ctx, r)
		if err != nil && !errors.Is(err, source.ErrPersonFirst) && joined != nil {
			l.queue.add(joined)
		}
		return d, err
	}
	err := l.request(ctx, r)
	return r.status, err
}

// ErrNoCatalog is returned if no release catalog is configured.
var ErrNoCatalog = errors.New("no release catalog is configured")

// ForgetCatalog forgets the verified version of the release catalog and polls now: the poll accepts any verified
// version, even a lower one. It returns the status.
func (l *Loop) ForgetCatalog(ctx context.Context, onProgress func(status.Progress)) (status.Status, error) {
	r := newRequest(ctx, "forget", nil)
	r.urgent = false
	r.do = func(ctx context.Context) (cycleResult, error) {
		if l.agent.Catalog == nil {
			return cycleResult{}, ErrNoCatalog
		}
		return cycleResult{}, l.agent.Catalog.Forget(ctx)
	}
	if err := l.request(ctx, r); err != nil {
		return l.Status(), err
	}
	return l.Check(ctx, onProgress)
}

// Reconfigure replaces the agent.
func (l *Loop) Reconfigure(ctx context.Context, a *Agent, interval time.Duration) error {
	r := newRequest(ctx, "reload", nil)
	r.do = func(ctx context.Context) (cycleResult, error) {
		l.stopEvents()
		times := *l.times
		times.clock = a.Now
		times.setInterval(interval)
		l.setAgent(a, &times)
		l.stopEvents = l.watchEvents(ctx)
		d, _ := l.agent.cycle(ctx, r) // the status has its error
		return d, nil
	}
	return l.request(ctx, r)
}

// watchEvents observes the node soon after followed containers start or end, or a new static pod starts.
func (l *Loop) watchEvents(ctx context.Context) (stop func()) {
	return l.watched.WatchEvents(ctx, l.agent.Events, l.agent.Pods, func() {
		l.correct()
		l.queue.add(l.newPoll(source.PollNone))
	})
}
