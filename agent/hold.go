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
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// maxReason bounds a person's reason, in bytes.
const maxReason = 200

var (
	// ErrHoldEnds: a hold that has ended before it begins.
	ErrHoldEnds = errors.New("the hold's end is not in the future")
	// ErrReason: the reason is too long.
	ErrReason = fmt.Errorf("reason: more than %d bytes", maxReason)
)

// Hold keeps the named images (repositories, ends of them, or file names of pod
// manifests), or all, from being applied until a time; zero: until Unhold. It
// returns what is held: repositories, or "*".
func (a *Agent) Hold(
	ctx context.Context, names []string, all bool, h record.PersonHold,
) ([]string, status.Status, error) {
	keys, d, err := requests{a}.hold(ctx, names, all, h)
	return keys, d.status, err
}

func (a requests) hold(ctx context.Context, names []string, all bool, h record.PersonHold) ([]string, done, error) {
	switch {
	case len(h.Reason) > maxReason:
		return nil, done{}, ErrReason
	case !h.Until.IsZero() && !h.Until.After(a.Now()):
		return nil, done{}, fmt.Errorf("%s: %w", h.Until.UTC().Format(time.RFC3339), ErrHoldEnds)
	}
	keys, err := a.held(ctx, names, all)
	if err != nil {
		return nil, done{}, err
	}
	h.At, h.Until = a.Now().UTC(), outside.Time(h.Until)
	for _, k := range keys {
		a.records.Record.Holds.Set(k, h)
	}
	s, err := a.kept(ctx)
	return keys, s, err
}

// Unhold takes back the holds of persons on the named images, or all of them.
// It returns those that were there.
func (a *Agent) Unhold(ctx context.Context, names []string, all bool) ([]string, status.Status, error) {
	keys, d, err := requests{a}.unhold(ctx, names, all)
	return keys, d.status, err
}

func (a requests) unhold(ctx context.Context, names []string, all bool) ([]string, done, error) {
	if err := a.load(ctx, a.Log); err != nil {
		return nil, done{}, err
	}
	var keys, rest []string // a held image need not be used by any pod any more
	for k := range a.records.Record.Holds {
		if all || slices.ContainsFunc(names, func(n string) bool { return plan.IsRepository(k, n) }) {
			keys = append(keys, k)
		}
	}
	for _, n := range names {
		if !slices.ContainsFunc(keys, func(k string) bool { return plan.IsRepository(k, n) }) {
			rest = append(rest, n)
		}
	}
	if len(rest) > 0 {
		more, err := a.held(ctx, rest, false)
		if err != nil {
			return nil, done{}, err
		}
		keys = append(keys, more...)
	}
	slices.Sort(keys)
	keys = slices.DeleteFunc(keys, func(k string) bool {
		_, ok := a.records.Record.Holds[k]
		a.records.Record.Holds.Delete(k)
		return !ok
	})
	s, err := a.kept(ctx)
	return keys, s, err
}

// kept keeps a changed hold before the cycle that shows it. One that cannot be kept
// has not changed.
func (a requests) kept(ctx context.Context) (done, error) {
	if err := a.records.Commit(ctx); err != nil {
		return done{}, err
	}
	return a.cycle(ctx, errand{person: true})
}

// held finds the keys that names stand for.
func (a requests) held(ctx context.Context, names []string, all bool) ([]string, error) {
	pl, err := a.Plan(ctx, source.PollNone) // also reads the record
	if err != nil {
		return nil, err
	}
	if all {
		return []string{record.Everything}, nil
	}
	pods, err := plan.Pick(pl, names)
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, p := range pods {
		for _, i := range p.Images {
			if slices.Contains(names, p.File) || slices.ContainsFunc(names, func(n string) bool { return plan.IsNamed(i, n) }) {
				keys = append(keys, i.Want.Ask.Repository)
			}
		}
	}
	slices.Sort(keys)
	keys = slices.DeleteFunc(slices.Compact(keys), func(k string) bool { return k == "" })
	return keys, nil
}
