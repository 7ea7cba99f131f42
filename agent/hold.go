// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// maxReason limits the reason of a hold, in bytes.
const maxReason = 200

var (
	// ErrHoldEnds is returned for a hold that ends in the past.
	ErrHoldEnds = errors.New("the end of the hold is not in the future")
	// ErrReason is returned for a reason that is too long.
	ErrReason = fmt.Errorf("reason: more than %d bytes", maxReason)
)

// Hold holds images; see Agent.Hold.
func (l *Loop) Hold(
	ctx context.Context, names []string, all bool, reason string, until time.Time,
) (held []string, err error) {
	r := newRequest(ctx, "hold", nil)
	r.do = func(ctx context.Context) (d cycleResult, err error) {
		held, d, err = l.agent.hold(ctx, r, names, all, record.PersonHold{Reason: reason, Until: until})
		return d, err
	}
	err = l.request(ctx, r)
	return held, err
}

// Resume removes holds; see Agent.Resume.
func (l *Loop) Resume(ctx context.Context, names []string, all bool) (held []string, err error) {
	r := newRequest(ctx, "resume", nil)
	r.do = func(ctx context.Context) (d cycleResult, err error) {
		held, d, err = l.agent.resume(ctx, r, names, all)
		return d, err
	}
	err = l.request(ctx, r)
	return held, err
}

// Hold prevents applies of the named images, or all, until a time; zero means until Resume. It returns the held
// repositories, or "*". Apply defines the names.
func (a *Agent) Hold(
	ctx context.Context, names []string, all bool, h record.PersonHold,
) ([]string, status.Status, error) {
	keys, d, err := a.hold(ctx, newRequest(ctx, "hold", nil), names, all, h)
	return keys, d.status, err
}

func (a *Agent) hold(
	ctx context.Context, r *Request, names []string, all bool, h record.PersonHold,
) ([]string, cycleResult, error) {
	switch err := (plan.Which{Images: names, All: all}).Check(); {
	case err != nil:
		return nil, cycleResult{}, err
	case len(h.Reason) > maxReason:
		return nil, cycleResult{}, ErrReason
	case !h.Until.IsZero() && !h.Until.After(a.Now()):
		return nil, cycleResult{}, fmt.Errorf("%s: %w", h.Until.UTC().Format(time.RFC3339), ErrHoldEnds)
	}
	keys, err := a.holdKeys(ctx, names, all)
	if err != nil {
		return nil, cycleResult{}, err
	}
	h.At, h.Until, h.By = a.Now().UTC(), outside.Time(h.Until), r.by
	for _, k := range keys {
		a.records.Record.Hold(k, h)
	}
	return a.commitHolds(ctx, r, keys, func() {
		var until any = h.Until
		if h.Until.IsZero() {
			until = "resume"
		}
		a.Log.Info("held", "images", keys, "until", until, "by", r.by.String())
	})
}

// Resume removes the holds of people on the named images, or all. It returns those that it
// removed.
func (a *Agent) Resume(ctx context.Context, names []string, all bool) ([]string, status.Status, error) {
	keys, d, err := a.resume(ctx, newRequest(ctx, "resume", nil), names, all)
	return keys, d.status, err
}

func (a *Agent) resume(
	ctx context.Context, r *Request, names []string, all bool,
) ([]string, cycleResult, error) {
	if err := (plan.Which{Images: names, All: all}).Check(); err != nil {
		return nil, cycleResult{}, err
	}
	if err := a.load(ctx, a.Log); err != nil {
		return nil, cycleResult{}, err
	}
	var keys []string // a held image may no longer be used
	for k := range a.records.Record.Holds {
		if all || slices.ContainsFunc(names, func(n string) bool { return plan.IsRepository(k, n) }) {
			keys = append(keys, k)
		}
	}
	rest := slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		return slices.ContainsFunc(keys, func(k string) bool { return plan.IsRepository(k, n) })
	})
	if len(rest) > 0 {
		more, err := a.holdKeys(ctx, rest, false)
		if err != nil {
			return nil, cycleResult{}, err
		}
		keys = append(keys, more...)
	}
	if rec := &a.records.Record; all && rec.Lost != nil {
		rec.Lost = nil
		rec.Holds.Set(record.AllImages, record.PersonHold{}) // removed below, and named in the answer
		keys = append(slices.DeleteFunc(keys, func(k string) bool { return k == record.AllImages }), record.AllImages)
	}
	slices.Sort(keys)
	keys = slices.DeleteFunc(keys, func(k string) bool {
		_, ok := a.records.Record.Holds[k]
		a.records.Record.Holds.Delete(k)
		return !ok
	})
	return a.commitHolds(ctx, r, keys, func() {
		a.Log.Info("hold removed", "images", keys, "by", r.by.String())
	})
}

// commitHolds saves the holds of the keys, logs them, and reports them. The request is done once they are saved: the
// status shows what the cycle meets.
func (a *Agent) commitHolds(
	ctx context.Context, r *Request, keys []string, log func(),
) ([]string, cycleResult, error) {
	if err := a.records.Commit(ctx); err != nil {
		return keys, cycleResult{}, err
	}
	if len(keys) > 0 {
		log()
	}
	d, err := a.cycle(ctx, r)
	if intr, is := errors.AsType[*interruptedError](err); is {
		d.unfinished = intr
	} else if err != nil {
		a.Log.Warn("the cycle after a change of holds did not end", "err", err)
	}
	return keys, d, nil
}

// holdKeys returns the repositories of the named images.
func (a *Agent) holdKeys(ctx context.Context, names []string, all bool) ([]string, error) {
	if all { // also while the node cannot be observed
		return []string{record.AllImages}, a.load(ctx, a.Log)
	}
	pl, err := a.Plan(ctx, source.PollNone) // also reads the record
	if err != nil {
		return nil, err
	}
	pods, err := plan.Pick(pl, plan.Named(names...))
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, p := range pods {
		for _, i := range p.Images {
			isNamed := func(n string) bool { return n == p.File || plan.IsNamed(i, n) }
			if i.Want.Ask.Repository != "" && slices.ContainsFunc(names, isNamed) {
				keys = append(keys, i.Want.Ask.Repository)
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}
