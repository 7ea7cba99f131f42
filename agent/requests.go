// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"

	"github.com/kubic-project/image-update-agent/agent/plan"
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
		l.pending = nil // a full poll includes it
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

// ErrNoCatalog is returned if no release catalog is configured.
var ErrNoCatalog = errors.New("no release catalog is configured")

// ForgetCatalog forgets the verified version of the release catalog and polls now: the poll accepts any verified
// version, even a lower one. It returns the status.
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

// Apply approves and applies the selected images; see Agent.Apply.
func (l *Loop) Apply(
	ctx context.Context, req ApplyRequest, onProgress func(status.Progress),
) (out []status.Outcome, err error) {
	by, c := status.ActorOf(ctx), newCaller()
	if req.DryRun {
		err = l.person(ctx, "dry run", doing{}, nil, nil, func(ctx context.Context) (d cycleResult, err error) {
			out, err = requests{l.agent, l.shared(), by, nil}.dryRun(ctx, req)
			return d, err
		})
		return out, err
	}
	var ended []status.Outcome
	err = l.person(ctx, "apply", doing{"applying what was approved", req.Which}, onProgress, c, func(
		ctx context.Context,
	) (d cycleResult, err error) {
		now := req
		req.Retry = false // a resumed apply does not remove denials made meanwhile
		ended, d, err = requests{l.agent, l.shared(), by, c}.apply(ctx, now)
		return d, err
	})
	if errors.Is(err, errLeft) {
		return c.outcomes()
	}
	return ended, err
}

// Rollback rolls the selected images back; see Agent.Rollback.
func (l *Loop) Rollback(
	ctx context.Context, which plan.Which, onProgress func(status.Progress),
) (out []status.Outcome, err error) {
	by, c := status.ActorOf(ctx), newCaller()
	var ended []status.Outcome
	now := doing{"rolling back", which}
	err = l.person(ctx, "rollback", now, onProgress, c, func(ctx context.Context) (d cycleResult, err error) {
		ended, d, err = requests{l.agent, l.shared(), by, c}.rollback(ctx, which)
		return d, err
	})
	if errors.Is(err, errLeft) {
		return c.outcomes()
	}
	return ended, err
}

// Hold holds images; see Agent.Hold.
func (l *Loop) Hold(
	ctx context.Context, names []string, all bool, reason string, until time.Time,
) (held []string, err error) {
	by, h := status.ActorOf(ctx), record.PersonHold{Reason: reason, Until: until}
	err = l.person(ctx, "hold", doing{}, nil, nil, func(ctx context.Context) (d cycleResult, err error) {
		held, d, err = requests{l.agent, l.shared(), by, nil}.hold(ctx, names, all, h)
		return d, err
	})
	return held, err
}

// Resume removes holds; see Agent.Resume.
func (l *Loop) Resume(ctx context.Context, names []string, all bool) (held []string, err error) {
	by := status.ActorOf(ctx)
	err = l.person(ctx, "resume", doing{}, nil, nil, func(ctx context.Context) (d cycleResult, err error) {
		held, d, err = requests{l.agent, l.shared(), by, nil}.resume(ctx, names, all)
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
		d, _ := l.agent.cycle(ctx, l.shared(), purpose{person: true})
		l.showResult(d)
		l.scheduleRest(d)
		return nil
	}})
}

// doing is the reason in the status while a request runs, and its selection; the zero value keeps the state.
type doing struct {
	text  string
	which plan.Which
}

// person runs a request on the loop's goroutine, before polls and stagings, and shows the status afterwards. If c
// leaves after a restart has begun, the request continues, and person returns errLeft.
func (l *Loop) person(
	ctx context.Context, verb string, now doing, onProgress func(status.Progress), c *caller,
	do func(context.Context) (cycleResult, error),
) error {
	ended := make(chan error, 1) // result of the task's last run
	e := l.request(ctx, onProgress, task{verb: verb, urgent: true, caller: c, do: func(ctx context.Context) error {
		if now.text != "" {
			l.showApplying(now.text, now.which)
		}
		d, err := do(ctx)
		if now.text != "" && !d.reported && !errors.Is(err, source.ErrPersonFirst) {
			d, _ = l.agent.cycle(ctx, l.shared(), purpose{person: true}) // publish the unchanged state
		}
		if now.text != "" && !d.reported { // interrupted, or the daemon ends
			d.status, d.reported = l.lastReport, true
		}
		l.showResult(d)
		l.scheduleRest(d)
		select {
		case <-ended: //nolint:errcheck // the error of the interrupted run
		default:
		}
		ended <- err
		return err
	}})
	select {
	case err := <-ended:
		if !errors.Is(e, errLeft) {
			return errors.Join(err, e)
		}
	default:
	}
	return e
}
