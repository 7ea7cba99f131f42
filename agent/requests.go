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

// Check polls everything now and returns the status.
func (l *Loop) Check(ctx context.Context, onProgress func(status.Progress)) (status.Status, error) {
	var d cycleResult
	var err error
	poll := source.PollAll
	e := l.request(ctx, onProgress, task{verb: "check", do: func(ctx context.Context) error {
		owed := l.pending
		l.pending = nil // a full poll covers it
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

// ErrNoCatalog is returned where no release catalog is configured.
var ErrNoCatalog = errors.New("no release catalog is configured")

// ForgetCatalog forgets the verified version of the release catalog, and polls now: any verified
// version is taken then, also a lower one. It returns the status.
func (l *Loop) ForgetCatalog(ctx context.Context, onProgress func(status.Progress)) (status.Status, error) {
	var err error
	e := l.request(ctx, nil, task{verb: "forget", do: func(ctx context.Context) error {
		if l.agent.Catalog == nil {
			err = ErrNoCatalog
			return err
		}
		err = l.agent.Catalog.Forget(ctx)
		return err
	}})
	if err = errors.Join(err, e); err != nil {
		return l.Status(), err
	}
	return l.Check(ctx, onProgress)
}

// Apply approves and applies the named images; see Agent.Apply.
func (l *Loop) Apply(
	ctx context.Context, names []string, retry bool, onProgress func(status.Progress),
) (out []status.Outcome, err error) {
	by := status.ActorOf(ctx)
	err = l.person(ctx, "apply", "applying what was approved", onProgress, func(
		ctx context.Context,
	) (d cycleResult, err error) {
		again := retry
		retry = false // a resumed apply does not allow what was denied meanwhile
		out, d, err = requests{l.agent, by}.apply(ctx, names, again)
		return d, err
	})
	return out, err
}

// Rollback rolls the named images back; see Agent.Rollback.
func (l *Loop) Rollback(
	ctx context.Context, names []string, onProgress func(status.Progress),
) (out []status.Outcome, err error) {
	by := status.ActorOf(ctx)
	err = l.person(ctx, "rollback", "rolling back", onProgress, func(ctx context.Context) (d cycleResult, err error) {
		out, d, err = requests{l.agent, by}.rollback(ctx, names)
		return d, err
	})
	return out, err
}

// Hold holds images; see Agent.Hold.
func (l *Loop) Hold(
	ctx context.Context, names []string, all bool, reason string, until time.Time,
) (held []string, err error) {
	by := status.ActorOf(ctx)
	err = l.person(ctx, "hold", "", nil, func(ctx context.Context) (d cycleResult, err error) {
		held, d, err = requests{l.agent, by}.hold(ctx, names, all, record.PersonHold{Reason: reason, Until: until})
		return d, err
	})
	return held, err
}

// Unhold removes holds; see Agent.Unhold.
func (l *Loop) Unhold(ctx context.Context, names []string, all bool) (held []string, err error) {
	by := status.ActorOf(ctx)
	err = l.person(ctx, "unhold", "", nil, func(ctx context.Context) (d cycleResult, err error) {
		held, d, err = requests{l.agent, by}.unhold(ctx, names, all)
		return d, err
	})
	return held, err
}

// Reconfigure replaces the agent.
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

// person runs a request on the loop's goroutine, before polls and stagings, and shows the
// status afterwards. doing is the reason in the status meanwhile; empty: none.
func (l *Loop) person(
	ctx context.Context, verb, doing string, onProgress func(status.Progress),
	do func(context.Context) (cycleResult, error),
) error {
	var err error
	e := l.request(ctx, onProgress, task{verb: verb, urgent: true, do: func(ctx context.Context) error {
		if doing != "" {
			l.showApplying(doing)
		}
		var d cycleResult
		d, err = do(ctx)
		if doing != "" && !d.reported && !errors.Is(err, source.ErrPersonFirst) {
			d, _ = l.agent.cycle(ctx, purpose{person: true}) // publish the unchanged state
		}
		if doing != "" && !d.reported { // interrupted, or the daemon ends
			d.status, d.reported = l.lastReport, true
		}
		l.showResult(d)
		l.scheduleRest(d)
		return err
	}})
	return errors.Join(err, e)
}
