// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"sync"
	"time"
)

// lookInterval is how often the node is looked at between polls: it costs no
// request, notices what kubelet or a person did, and sets the grain again
// after somebody rewrote the file. Salt refreshes grains every ten minutes.
const lookInterval = 10 * time.Minute

// firstInterval is what the first poll for an image is spread over: short for the
// person who has just installed the agent or the pod, long for a registry whose
// thousand nodes were given it together.
const firstInterval = 10 * time.Minute

// restInterval is the least time between two retries, for nodes that cannot even
// be looked at: they never come to asking.
const restInterval = time.Minute

// Notifier tells the service manager how the loop is doing.
type Notifier interface {
	// Status is a sentence for `systemctl status`.
	Status(text string)
	// Turned says that the loop has turned.
	Turned()
}

// ErrEnded: the loop has ended and does nothing any more.
var ErrEnded = errors.New("the daemon is ending")

// Loop runs the cycles, one at a time: by the clock, and when a person asks.
type Loop struct {
	notify  Notifier
	wake    time.Duration // the longest sleep, for the watchdog; 0: lookInterval
	queue   *queue
	ended   chan struct{} // closed when Run returns
	mu      sync.Mutex    // guards status, found and changed
	status  Status
	found   Status        // by the last cycle; the loop's goroutine alone changes it
	changed chan struct{} // closed, and another one made, when the status changes
	hearing sync.Mutex    // guards hearers, also while they hear
	hearers map[int]func(Progress)
	nextID  int
	watched watched

	// Only the loop's goroutine touches what follows.
	agent      *Agent
	stopEvents func()
	interval   time.Duration
	machineID  string
	slot       time.Time // the next poll of everything; zero: polling is off
	first      time.Time // the poll for what was never asked; zero: there is no such thing
	look       time.Time // the next observation; zero: lookInterval after the cycle that runs
	rested     time.Time // no retry before
	owed       *Poll     // a cycle to do at once: one that was interrupted, or what a request has left
	cut        *Interruption
}

// NewLoop makes the loop of an agent. interval 0 turns polling off; wake bounds
// the sleep, so that a watchdog is served in time.
func NewLoop(a *Agent, n Notifier, interval, wake time.Duration, machineID string) *Loop {
	l := &Loop{
		notify: n, wake: wake, queue: newQueue(), ended: make(chan struct{}),
		hearers: map[int]func(Progress){}, machineID: machineID, changed: make(chan struct{}),
	}
	l.adopt(a, interval)
	l.found = a.blank(StateUnchecked, Reason{Kind: KindStarting, Text: "starting"})
	l.status = l.found
	return l
}

func (l *Loop) adopt(a *Agent, interval time.Duration) {
	a.Progress = l.progress
	a.watched = &l.watched
	a.schedule, a.nextObservation, a.people = l.schedule, l.nextObservation, l.queue
	if l.agent != nil {
		a.missing = l.agent.missing // what was not started in time is not believed anew
	}
	l.agent, l.interval = a, interval
}

// Run turns until ctx ends, and then returns nil: a step that has begun is
// finished or left whole. It is called once.
func (l *Loop) Run(ctx context.Context) error {
	defer close(l.ended)
	l.stopEvents = l.watchEvents(ctx)
	defer func() { l.stopEvents() }()
	l.watched.setBusy(true)
	if err := l.agent.load(ctx); err != nil {
		l.agent.Log.Warn("record not read yet", "err", err) // the cycle reads it again, and says so
	}
	l.next(l.now())
	l.look = l.now() // the node may have changed while we were off
	for {
		now := l.now()
		switch {
		case l.queue.hasRequests(): // persons come before the clock
		case l.owed != nil:
			l.queue.resume()
			l.byClock(ctx, PollNone)
		case !l.slot.IsZero() && !now.Before(l.slot):
			l.slot = NextSlot(now, l.interval, l.machineID)
			l.byClock(ctx, PollDue)
		case !l.slot.IsZero() && !now.Before(l.due(l.agent.retries())):
			l.byClock(ctx, PollFailed)
			l.rested = l.now().Add(restInterval)
		case !now.Before(l.look):
			l.byClock(ctx, PollNone)
		}
		l.nextObservation(l.Status())
		if !l.wait(ctx) {
			return nil
		}
		if then := l.now(); then.Before(now) {
			l.next(then) // the clock was set back
			l.look, l.first, l.rested = then, time.Time{}, time.Time{}
		}
	}
}

// now is the wall clock alone: with the monotonic one in it, a time could not be
// seen to be before another when the clock was set back.
func (l *Loop) now() time.Time { return l.agent.Now().Round(0) }

// next finds the next slot and lets the status name it.
func (l *Loop) next(now time.Time) { l.slot = NextSlot(now, l.interval, l.machineID) }

// schedule is when anything is asked next. What was never asked for is asked for
// soon, at a moment of the node's own: a new node waits for it, or a new pod.
func (l *Loop) schedule(retries []time.Time, unasked bool) time.Time {
	switch {
	case !unasked:
		l.first = time.Time{}
	case l.first.IsZero():
		l.first = NextSlot(l.now(), min(l.interval, firstInterval), l.machineID)
	}
	return l.due(retries)
}

// due is when anything is asked next: at the slot, or before it for what was
// never asked, or where sources have failed, at the earliest retry. Without an
// interval, never.
func (l *Loop) due(retries []time.Time) time.Time {
	if !l.first.IsZero() {
		retries = append(retries, l.first)
	}
	for n, r := range retries {
		if r.Before(l.rested) {
			retries[n] = l.rested
		}
	}
	return earliest(l.slot, retries)
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
	now := l.now()
	d := l.look.Sub(now)
	if due := l.due(l.agent.retries()); !due.IsZero() {
		d = min(d, due.Sub(now))
	}
	if l.wake > 0 {
		d = min(d, l.wake)
	}
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	l.watched.setBusy(false)
	defer l.watched.setBusy(true)
	select {
	case <-ctx.Done():
		return false
	case <-l.queue.added:
	case <-timer.C:
	}
	return true
}

// turn does one cycle and keeps its status.
func (l *Loop) turn(ctx context.Context, poll Poll) (Status, error) {
	s, err := l.agent.Cycle(ctx, poll)
	if err == nil && l.agent.moved {
		s, err = l.agent.Cycle(ctx, PollDue) // what the tag names now is staged, and applied
	}
	if s.SchemaVersion != 0 { // else it was interrupted, or the daemon ends
		l.keep(s)
	}
	return s, err
}

func (l *Loop) keep(s Status) {
	if l.owed == nil && l.queue.owesNone() {
		l.cut = nil
	}
	s.Interrupted = l.cut
	if l.agent.Meter != nil {
		l.agent.Meter.Turned()
	}
	l.mu.Lock()
	l.found = s
	s = l.watched.correct(s)
	l.status = s
	l.announceChange()
	l.mu.Unlock()
	l.notify.Status(Sentence(s))
	l.notify.Turned()
}

// Changed is closed when the status becomes another one, its progress aside. Who
// takes it before the status misses no change. Safe for concurrent use.
func (l *Loop) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// announceChange wakes those who wait for Changed. The caller holds the lock.
func (l *Loop) announceChange() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Status is the node as of the last cycle, with the progress of the one that
// runs. Safe for concurrent use.
func (l *Loop) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// Listen has f hear all progress until the returned function has returned. f must
// neither wait for the loop nor take its time: the work waits for it. Safe for
// concurrent use.
func (l *Loop) Listen(f func(Progress)) (stop func()) {
	l.hearing.Lock()
	defer l.hearing.Unlock()
	id := l.nextID
	l.nextID++
	l.hearers[id] = f
	return func() {
		l.hearing.Lock()
		defer l.hearing.Unlock()
		delete(l.hearers, id)
	}
}

// progress keeps how far the work is and passes it on. The zero Progress says only that
// the loop lives.
func (l *Loop) progress(p Progress) {
	defer l.notify.Turned()
	if p.Phase == "" {
		return
	}
	l.mu.Lock()
	l.status.Progress = &p
	l.status.Pulls = Pulling(l.status.Pulls, p)
	if p.Phase == phaseWaiting || p.Phase == phaseProving {
		l.applying(p.Reference + " is " + p.Phase) // also where nobody has asked for it
	}
	l.mu.Unlock()
	l.hearing.Lock()
	for _, f := range l.hearers {
		f(p)
	}
	l.hearing.Unlock()
}

// Sentence is a status in one line, its times as in all texts of a status.
func Sentence(s Status) string {
	text := string(s.State) + ": " + s.Reason
	if s.NextCheck != nil {
		text += "; next check " + s.NextCheck.UTC().Format(time.RFC3339)
	}
	return text
}
