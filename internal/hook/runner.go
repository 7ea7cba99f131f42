// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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
	Log      *slog.Logger
}

// Run runs the hooks and records whether they must run again. A change is delivered when the event and the program, or
// a webhook, have succeeded; until then they receive it again.
func (r Runner) Run(ctx context.Context) error {
	err := errors.Join(r.refresh(ctx), r.programs(ctx), r.webhooks(ctx))
	return errors.Join(err, r.Outbox.Ended(err != nil, time.Now()))
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

func (r Runner) webhooks(ctx context.Context) error {
	failed := make([]error, len(r.Webhooks))
	var all sync.WaitGroup
	for n, h := range r.Webhooks {
		all.Go(func() {
			failed[n] = r.deliver(ctx, h.Name, func(c Change) error {
				if !c.Is(h.Events) {
					return nil
				}
				return h.Send(ctx, c)
			}, "webhook", h.Name)
		})
	}
	all.Wait()
	return errors.Join(failed...)
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
