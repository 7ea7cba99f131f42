// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// What persons ask of the loop. Each waits for its own cycle; a check for the one that
// runs too. The others interrupt polls and stagings, and begin within two seconds where
// no pod is being restarted.

// Check polls now, all of it, and returns what was found.
func (l *Loop) Check(ctx context.Context, onProgress func(status.Progress)) (status.Status, error) {
	var d cycleResult
	var err error
	poll := source.PollAll
	e := l.request(ctx, onProgress, task{verb: "check", do: func(ctx context.Context) error {
		owed := l.pending
		l.pending = nil // it asks everything, and stages it
		d, err = l.cycle(ctx, poll)
		if intr, is := errors.AsType[*interruptedError](err); is {
			poll = intr.rest
		} else if err != nil {
			l.pending = owed
		}
		l.scheduleRest(d)
		return err
	}})
	return d.status, errors.Join(err, e)
}

// Apply approves and applies what is staged for the named images; see Agent.Apply.
func (l *Loop) Apply(
	ctx context.Context, names []string, retry bool, onProgress func(status.Progress),
) (out []status.Outcome, err error) {
	err = l.person(ctx, "apply", "applying what was approved", onProgress, func(ctx context.Context) (d cycleResult, err error) {
		again := retry
		retry = false // where it goes on later: what a person has rolled back meanwhile stays so
		out, d, err = requests{l.agent}.apply(ctx, names, again)
		return d, err
	})
	return out, err
}

// Rollback returns the named images' pods to what ran well before; see
// Agent.Rollback.
func (l *Loop) Rollback(
	ctx context.Context, names []string, onProgress func(status.Progress),
) (out []status.Outcome, err error) {
	err = l.person(ctx, "rollback", "rolling back", onProgress, func(ctx context.Context) (d cycleResult, err error) {
		out, d, err = requests{l.agent}.rollback(ctx, names)
		return d, err
	})
	return out, err
}

// Hold keeps images from being applied; see Agent.Hold.
func (l *Loop) Hold(
	ctx context.Context, names []string, all bool, reason string, until time.Time,
) (held []string, err error) {
	err = l.person(ctx, "hold", "", nil, func(ctx context.Context) (d cycleResult, err error) {
		held, d, err = requests{l.agent}.hold(ctx, names, all, record.PersonHold{Reason: reason, Until: until})
		return d, err
	})
	return held, err
}

// Unhold takes holds back; see Agent.Unhold.
func (l *Loop) Unhold(ctx context.Context, names []string, all bool) (held []string, err error) {
	err = l.person(ctx, "unhold", "", nil, func(ctx context.Context) (d cycleResult, err error) {
		held, d, err = requests{l.agent}.unhold(ctx, names, all)
		return d, err
	})
	return held, err
}

// Reconfigure goes on with another agent.
func (l *Loop) Reconfigure(ctx context.Context, a *Agent, interval time.Duration) error {
	return l.request(ctx, nil, task{verb: "reload", urgent: true, do: func(ctx context.Context) error {
		l.stopEvents()
		times := *l.times
		times.clock, times.interval = a.Now, interval
		l.setAgent(a, &times)
		l.stopEvents = l.watchEvents(ctx)
		l.times.nextSlot(l.times.now())
		d, _ := l.agent.cycle(ctx, purpose{person: true})
		l.showResult(d)
		l.scheduleRest(d)
		return nil
	}})
}

// person has the loop's goroutine do what a person asks, before polls and stagings, and
// shows the status after it. doing is what the status says meanwhile; empty: it is short.
func (l *Loop) person(
	ctx context.Context, verb, doing string, onProgress func(status.Progress), do func(context.Context) (cycleResult, error),
) error {
	var err error
	e := l.request(ctx, onProgress, task{verb: verb, urgent: true, do: func(ctx context.Context) error {
		if doing != "" {
			l.showApplying(doing)
		}
		var d cycleResult
		d, err = do(ctx)
		if doing != "" && !d.reported && !errors.Is(err, source.ErrPersonFirst) {
			d, _ = l.agent.cycle(ctx, purpose{person: true}) // nothing was done: show again what is
		}
		if doing != "" && !d.reported { // it was interrupted, or the daemon ends
			d.status, d.reported = l.lastReport, true
		}
		l.showResult(d)
		l.scheduleRest(d)
		return err
	}})
	return errors.Join(err, e)
}
