// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
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
			waiting = append(waiting, fmt.Errorf("webhook %s: failed before, next attempt after %s", h.Name,
				kept.Of[h.Name].After.Format(time.RFC3339)))
			continue
		}
		all.Go(func() {
			err := r.deliver(ctx, h.Name, func(c Change) error {
				if !c.Is(h.Events) {
					return errOtherEvents
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

// errOtherEvents: the consumer does not want to hear of the change, and nothing was sent.
var errOtherEvents = errors.New("none of its events")

// deliver passes a consumer the changes since its last success.
func (r Runner) deliver(ctx context.Context, consumer string, give func(Change) error, to ...any) error {
	change, delivered, err := r.Outbox.Change(consumer)
	if err != nil || change.Empty() {
		return err
	}
	change.Node = r.Node
	switch err := give(change); {
	case errors.Is(err, errOtherEvents):
		return delivered()
	case err != nil:
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

const (
	// retryFile is in the state directory while a hook has failed.
	retryFile = "hook-retry.json"
	// Each failure doubles the time until the next attempt.
	firstRetry = time.Minute
	maxRetry   = time.Hour
	maxRetries = 16 // limit of the count
	// maxAsked limits the wait that a server asks for with Retry-After.
	maxAsked = 24 * time.Hour
	// maxRetryFile limits the file: nine consumers have 1 kB.
	maxRetryFile = 16 << 10
)

// retry is when a consumer that failed is tried again without a change. A webhook gets no request before, and then all
// changes in one.
type retry struct {
	Failures int       `json:"failures"` // consecutive ones
	After    time.Time `json:"after"`
}

// next returns the retry after one more failure. asked is the time that the server asked for; zero: none.
func (r retry) next(now, asked time.Time) retry {
	wait := maxRetry
	if r.Failures >= 0 && r.Failures < 6 {
		wait = firstRetry << r.Failures
	}
	next := retry{Failures: min(max(r.Failures, 0)+1, maxRetries), After: now.Add(wait)}
	if asked.After(next.After) {
		next.After = asked
	}
	return next
}

// isWaiting reports whether it is too early; a clock that was set back does not postpone it.
func (r retry) isWaiting(now time.Time) bool {
	return r.Failures > 0 && now.Before(r.After) && r.After.Sub(now) <= maxAsked
}

// isDue reports whether it is time.
func (r retry) isDue(now time.Time) bool { return r.Failures > 0 && !r.isWaiting(now) }

// retries are those of the consumers that failed, by name.
type retries struct {
	Of map[string]retry `json:"consumers"`
}

// wasAsked is the error of a server that asked to wait.
type wasAsked struct {
	until time.Time
	err   error
}

func (w *wasAsked) Error() string {
	return fmt.Sprintf("%v: the server asks to wait until %s", w.err, w.until.UTC().Format(time.RFC3339))
}

func (w *wasAsked) Unwrap() error { return w.err }

// Ended records the end of a run: why each consumer failed, nil if it succeeded. What is not named, because it was not
// tried, keeps its wait.
func (d *Outbox) Ended(results map[string]error, now time.Time) error {
	kept := d.retries()
	next := retries{map[string]retry{}}
	for _, name := range append([]string{Programs}, d.consumers...) {
		err, tried := results[name]
		before, failed := kept.Of[name]
		switch {
		case !tried && failed:
			next.Of[name] = before
		case err != nil:
			var asked time.Time
			if w, is := errors.AsType[*wasAsked](err); is {
				asked = w.until
			}
			next.Of[name] = before.next(now.UTC(), asked.UTC())
		}
	}
	if len(next.Of) == 0 {
		_, err := remove(d.stateDir, retryFile)
		return err
	}
	return writeJSON(d.stateDir, retryFile, next, 0o600)
}

// again requests a run after a failure when it is time.
func (d *Outbox) again(now time.Time) error {
	for _, r := range d.retries().Of {
		if r.isDue(now) {
			return d.due()
		}
	}
	return nil
}

// retries returns the zero value if there is no file, or an unreadable one.
func (d *Outbox) retries() (r retries) {
	text, err := nodefile.Read(filepath.Join(d.stateDir, retryFile), maxRetryFile)
	if err != nil || json.Unmarshal(text, &r) != nil {
		return retries{}
	}
	return r
}
