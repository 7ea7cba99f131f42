// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
)

// EventTag is the tag of the event on Salt's bus.
const EventTag = "image-update/changed"

// Runner runs the hooks of a node, one after the other; one that fails does not keep the others from running.
type Runner struct {
	Outbox   *Outbox
	Refresh  bool    // Salt's minion reads its grains again
	Event    bool    // Salt's master gets an event for each change
	SaltCall Program // for both, without arguments
	Exec     Program // gets each change; without a path: none
	Log      *slog.Logger
}

// Run runs them. A change is delivered when the event and the program have succeeded; until then it is given again.
func (r Runner) Run(ctx context.Context) error {
	var refresh error
	if r.Refresh {
		salt := r.SaltCall
		salt.Args = []string{"saltutil.refresh_grains"}
		if refresh = salt.Run(ctx); refresh == nil {
			r.Log.InfoContext(ctx, "grains refreshed")
		}
	}
	if !r.Event && r.Exec.Path == "" {
		return refresh
	}
	change, delivered, err := r.Outbox.Change()
	if err != nil || change.Empty() {
		return errors.Join(refresh, err)
	}
	if err = errors.Join(r.event(ctx, change), r.program(ctx, change)); err == nil {
		r.Log.InfoContext(ctx, "change delivered", "program", r.Exec.Path, "event", r.Event, "state", change.State,
			"was", change.Was, "offered", len(change.Offered), "staged", len(change.Staged), "applied", len(change.Applied),
			"failed", len(change.Failed))
		err = delivered()
	}
	return errors.Join(refresh, err)
}

// event sends state and count of what waits for approval to the master. Both are words of ours, so that nothing else is
// read as YAML there.
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

// program gives the change to the admin's program.
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
