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

// Hold prevents applies of the named images, or all, until a time; zero means until Resume. It returns the held
// repositories, or "*". Apply defines the names.
func (a *Agent) Hold(
	ctx context.Context, names []string, all bool, h record.PersonHold,
) ([]string, status.Status, error) {
	keys, d, err := requests{agent: a, by: status.ActorOf(ctx)}.hold(ctx, names, all, h)
	return keys, d.status, err
}

func (r requests) hold(
	ctx context.Context, names []string, all bool, h record.PersonHold,
) ([]string, cycleResult, error) {
	switch err := (plan.Which{Images: names, All: all}).Check(); {
	case err != nil:
		return nil, cycleResult{}, err
	case len(h.Reason) > maxReason:
		return nil, cycleResult{}, ErrReason
	case !h.Until.IsZero() && !h.Until.After(r.agent.Now()):
		return nil, cycleResult{}, fmt.Errorf("%s: %w", h.Until.UTC().Format(time.RFC3339), ErrHoldEnds)
	}
	keys, err := r.holdKeys(ctx, names, all)
	if err != nil {
		return nil, cycleResult{}, err
	}
	h.At, h.Until, h.By = r.agent.Now().UTC(), outside.Time(h.Until), r.by
	for _, k := range keys {
		r.agent.records.Record.Hold(k, h)
	}
	return r.commitHolds(ctx, keys, func() {
		var until any = h.Until
		if h.Until.IsZero() {
			until = "resume"
		}
		r.agent.Log.Info("held", "images", keys, "until", until, "by", r.by.String())
	})
}

// Resume removes the holds of people on the named images, or all. It returns those that it
// removed.
func (a *Agent) Resume(ctx context.Context, names []string, all bool) ([]string, status.Status, error) {
	keys, d, err := requests{agent: a, by: status.ActorOf(ctx)}.resume(ctx, names, all)
	return keys, d.status, err
}

func (r requests) resume(ctx context.Context, names []string, all bool) ([]string, cycleResult, error) {
	if err := (plan.Which{Images: names, All: all}).Check(); err != nil {
		return nil, cycleResult{}, err
	}
	if err := r.agent.load(ctx, r.agent.Log); err != nil {
		return nil, cycleResult{}, err
	}
	var keys []string // a held image may no longer be used
	for k := range r.agent.records.Record.Holds {
		if all || slices.ContainsFunc(names, func(n string) bool { return plan.IsRepository(k, n) }) {
			keys = append(keys, k)
		}
	}
	rest := slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		return slices.ContainsFunc(keys, func(k string) bool { return plan.IsRepository(k, n) })
	})
	if len(rest) > 0 {
		more, err := r.holdKeys(ctx, rest, false)
		if err != nil {
			return nil, cycleResult{}, err
		}
		keys = append(keys, more...)
	}
	if rec := &r.agent.records.Record; all && rec.Lost != nil {
		rec.Lost = nil
		rec.Holds.Set(record.AllImages, record.PersonHold{}) // removed below, and named in the answer
		keys = append(slices.DeleteFunc(keys, func(k string) bool { return k == record.AllImages }), record.AllImages)
	}
	slices.Sort(keys)
	keys = slices.DeleteFunc(keys, func(k string) bool {
		_, ok := r.agent.records.Record.Holds[k]
		r.agent.records.Record.Holds.Delete(k)
		return !ok
	})
	return r.commitHolds(ctx, keys, func() {
		r.agent.Log.Info("hold removed", "images", keys, "by", r.by.String())
	})
}

// commitHolds saves the holds of the keys, logs them, and reports them. The request is done once they are saved: the
// status shows what the cycle meets.
func (r requests) commitHolds(ctx context.Context, keys []string, log func()) ([]string, cycleResult, error) {
	if err := r.agent.records.Commit(ctx); err != nil {
		return keys, cycleResult{}, err
	}
	if len(keys) > 0 {
		log()
	}
	d, err := r.agent.cycle(ctx, r.loop, purpose{person: true})
	if intr, is := errors.AsType[*interruptedError](err); is {
		d.unfinished = intr
	} else if err != nil {
		r.agent.Log.Warn("the cycle after a change of holds did not end", "err", err)
	}
	return keys, d, nil
}

// holdKeys returns the repositories of the named images.
func (r requests) holdKeys(ctx context.Context, names []string, all bool) ([]string, error) {
	if all { // also while the node cannot be observed
		return []string{record.AllImages}, r.agent.load(ctx, r.agent.Log)
	}
	pl, err := r.agent.plan(ctx, r.loop, source.PollNone) // also reads the record
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
