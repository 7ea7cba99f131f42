// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// EventTag is the tag of the event on Salt's bus.
const EventTag = "image-update/changed"

// Runner runs the hooks of a node: programs one after another, then all webhooks concurrently. A failure of one does
// not prevent the others.
type Runner struct {
	Outbox   *Outbox
	Node     string  // the node's name, for changes
	Refresh  bool    // Salt's minion reads its grains again
	Event    bool    // Salt's master receives an event for each change
	SaltCall Program // for both, without arguments
	Exec     Program // receives each change; without a path: none
	Webhooks []Webhook
	ByHand   bool // a person starts the run
	Log      *slog.Logger
}

// Run runs the hooks and records whether they must run again. A change is delivered when the event and the program, or
// a webhook, have succeeded; until then they receive it again. A webhook that failed is not asked before its wait is
// over, unless a person starts the run.
func (r Runner) Run(ctx context.Context) error {
	results := map[string]error{Programs: errors.Join(r.refresh(ctx), r.programs(ctx))}
	failed := r.webhooks(ctx, results)
	for _, name := range slices.Sorted(maps.Keys(results)) {
		failed = append(failed, results[name])
	}
	return errors.Join(append(failed, r.Outbox.Ended(results, time.Now()))...)
}

func (r Runner) refresh(ctx context.Context) error {
	if !r.Refresh {
		return nil
	}
	salt := r.SaltCall
	salt.Args = []string{"saltutil.refresh_grains"}
	err := salt.Run(ctx)
	if err == nil {
		r.Log.InfoContext(ctx, "grains refreshed")
	}
	return err
}

func (r Runner) programs(ctx context.Context) error {
	if !r.Event && r.Exec.Path == "" {
		return nil
	}
	return r.deliver(ctx, Programs, func(c Change) error { return errors.Join(r.event(ctx, c), r.program(ctx, c)) },
		"program", r.Exec.Path, "event", r.Event)
}

// webhooks adds the results of the webhooks that were asked, by name, and returns which were not.
func (r Runner) webhooks(ctx context.Context, results map[string]error) (waiting []error) {
	kept, now := r.Outbox.retries(), time.Now()
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, h := range r.Webhooks {
		if kept.Of[h.Name].isWaiting(now) && !r.ByHand {
			waiting = append(waiting, fmt.Errorf("webhook %s: failed before, is asked again from %s on", h.Name,
				kept.Of[h.Name].After.Format(time.RFC3339)))
			continue
		}
		all.Go(func() {
			err := r.deliver(ctx, h.Name, func(c Change) error {
				if !c.Is(h.Events) {
					return nil
				}
				return h.Send(ctx, c)
			}, "webhook", h.Name)
			mu.Lock()
			defer mu.Unlock()
			results[h.Name] = err
		})
	}
	all.Wait()
	return waiting
}

// deliver passes a consumer the changes since its last success.
func (r Runner) deliver(ctx context.Context, consumer string, give func(Change) error, to ...any) error {
	change, delivered, err := r.Outbox.Change(consumer)
	if err != nil || change.Empty() {
		return err
	}
	change.Node = r.Node
	if err := give(change); err != nil {
		return err
	}
	r.Log.InfoContext(ctx, "change delivered", append(to, "state", change.State, "was", change.Was,
		"offered", len(change.Offered), "staged", len(change.Staged), "applied", len(change.Applied),
		"failed", len(change.Failed))...)
	return delivered()
}

// event sends the state and the count of waiting images to the master. Both are fixed words, so that nothing else is
// parsed as YAML there.
func (r Runner) event(ctx context.Context, c Change) error {
	if !r.Event {
		return nil
	}
	salt := r.SaltCall
	salt.Args = []string{
		"event.send", EventTag, "state=" + c.State, "was=" + c.Was, fmt.Sprintf("count=%d", len(c.Waiting)),
	}
	return salt.Run(ctx)
}

// program passes the change to the admin's program.
func (r Runner) program(ctx context.Context, c Change) error {
	if r.Exec.Path == "" {
		return nil
	}
	input, err := json.Marshal(c)
	if err != nil {
		return err
	}
	program := r.Exec
	program.Input = append(input, '\n')
	return program.Run(ctx)
}
