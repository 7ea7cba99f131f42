// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"
)

// What persons ask of the loop. Each waits for its own cycle; a check for the one that
// runs too. The others interrupt polls and stagings, and begin within two seconds where
// no pod is being restarted.

// Check polls now, all of it, and returns what was found.
func (l *Loop) Check(ctx context.Context, hear func(Progress)) (Status, error) {
	var s Status
	var err error
	poll := PollAll
	e := l.run(ctx, hear, task{verb: "check", do: func(ctx context.Context) error {
		owed := l.owed
		l.owed = nil // it asks everything, and stages it
		s, err = l.turn(ctx, poll)
		if cut, is := errors.AsType[*Interruption](err); is {
			poll = cut.rest
		} else if err != nil {
			l.owed = owed
		}
		return err
	}})
	return s, errors.Join(err, e)
}

// Apply approves and applies what is staged for the named images; see Agent.Apply.
func (l *Loop) Apply(ctx context.Context, names []string, retry bool, hear func(Progress)) ([]Outcome, error) {
	apply := func(ctx context.Context) ([]Outcome, Status, error) {
		again := retry
		retry = false // where it goes on later: what a person has rolled back meanwhile stays so
		return l.agent.Apply(ctx, names, again)
	}
	return l.restart(ctx, "apply", "applying what was approved", hear, apply)
}

// Rollback returns the named images' pods to what ran well before; see
// Agent.Rollback.
func (l *Loop) Rollback(ctx context.Context, names []string, hear func(Progress)) ([]Outcome, error) {
	return l.restart(ctx, "rollback", "rolling back", hear, func(ctx context.Context) ([]Outcome, Status, error) {
		return l.agent.Rollback(ctx, names)
	})
}

// restart has the loop's goroutine do what restarts pods, and keeps the status.
func (l *Loop) restart(
	ctx context.Context, verb, what string, hear func(Progress), f func(context.Context) ([]Outcome, Status, error),
) ([]Outcome, error) {
	var out []Outcome
	var err error
	e := l.run(ctx, hear, task{verb: verb, urgent: true, do: func(ctx context.Context) error {
		l.say(what)
		var s Status
		out, s, err = f(ctx)
		if s.SchemaVersion == 0 && !errors.Is(err, errGoesFirst) {
			s, _ = l.agent.cycleFor(ctx, errand{person: true}) // nothing was done: say again what is
		}
		if s.SchemaVersion == 0 { // it was interrupted, or the daemon ends
			s = l.found
		}
		l.keep(s)
		return err
	}})
	return out, errors.Join(err, e)
}

// Hold keeps images from being applied; see Agent.Hold.
func (l *Loop) Hold(ctx context.Context, names []string, all bool, reason string, until time.Time) ([]string, error) {
	return l.change(ctx, "hold", func(ctx context.Context) ([]string, Status, error) {
		return l.agent.Hold(ctx, names, all, PersonHold{Reason: reason, Until: until})
	})
}

// Unhold takes holds back; see Agent.Unhold.
func (l *Loop) Unhold(ctx context.Context, names []string, all bool) ([]string, error) {
	return l.change(ctx, "unhold", func(ctx context.Context) ([]string, Status, error) {
		return l.agent.Unhold(ctx, names, all)
	})
}

// change has the loop's goroutine change what is kept, and keeps the status.
func (l *Loop) change(
	ctx context.Context, verb string, f func(context.Context) ([]string, Status, error),
) ([]string, error) {
	var out []string
	var err error
	e := l.run(ctx, nil, task{verb: verb, urgent: true, do: func(ctx context.Context) error {
		var s Status
		if out, s, err = f(ctx); s.SchemaVersion != 0 {
			l.keep(s)
		}
		return err
	}})
	return out, errors.Join(err, e)
}

// say tells that something is under way.
func (l *Loop) say(reason string) {
	l.mu.Lock()
	l.applying(reason)
	s := l.status
	l.mu.Unlock()
	l.notify.Status(Sentence(s))
}

// applying changes the state in the status while something is under way. The
// caller holds the lock.
func (l *Loop) applying(reason string) {
	if l.status.State != StateApplying {
		l.status.State, l.status.Since, l.status.Reason = StateApplying, l.now().UTC(), reason
		l.status.Reasons = []Reason{{Kind: KindApplying, Text: reason}}
		l.announceChange()
	}
}

// Reconfigure goes on with another agent.
func (l *Loop) Reconfigure(ctx context.Context, a *Agent, interval time.Duration) error {
	return l.run(ctx, nil, task{verb: "reload", urgent: true, do: func(ctx context.Context) error {
		l.stopEvents()
		l.adopt(a, interval)
		l.stopEvents = l.watchEvents(ctx)
		l.next(l.now())
		if s, _ := l.agent.cycleFor(ctx, errand{person: true}); s.SchemaVersion != 0 {
			l.keep(s)
		}
		return nil
	}})
}
