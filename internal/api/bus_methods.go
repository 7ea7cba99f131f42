// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/godbus/dbus/v5"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/bus"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// action is a method that acts.
type action struct {
	id        string // polkit's action
	signature string
	into      func(r *busRequest) []any // where the arguments go
	which     bool                      // wants images, or all of them
	do        func(ctx context.Context, d Daemon, r busRequest) ([]any, error)
}

// actions by method.
var actions = map[string]action{
	"Check": {BusName + ".check", "", func(*busRequest) []any { return nil }, false, doCheck},
	"Apply": {BusName + ".apply", "asbba(ss)", func(r *busRequest) []any {
		return []any{&r.Images, &r.All, &r.retry, &r.expect}
	}, true, doApply},
	"Rollback": {BusName + ".rollback", "asb", func(r *busRequest) []any {
		return []any{&r.Images, &r.All}
	}, true, doRollback},
	"Hold": {BusName + ".hold", "asbts", func(r *busRequest) []any {
		return []any{&r.Images, &r.All, &r.until, &r.reason}
	}, true, doHold},
	"Unhold": {BusName + ".unhold", "asb", func(r *busRequest) []any { return []any{&r.Images, &r.All} }, true, doUnhold},
}

// busRequest is what a method was called with.
type busRequest struct {
	plan.Which

	retry  bool
	expect []plan.Shown // (ss)
	until  uint64       // microseconds since 1970; 0: no end
	reason string
}

func (r busRequest) apply() agent.ApplyRequest {
	return agent.ApplyRequest{Which: r.Which, Retry: r.retry, Expect: r.expect}
}

// begin starts a call for which the caller has to be known. It continues when the bus ends; when its caller ends, see
// untilVanished. Calls of unknown callers wait for each other, so that callers without
// permission take none of the slots.
func (b *Bus) begin(ctx context.Context, s *bus.Service, c bus.Call, do func(known func()) ([]any, error)) {
	select {
	case b.unknown <- struct{}{}:
	case <-ctx.Done():
		return
	}
	b.acting.Go(func() {
		known := sync.OnceFunc(func() { <-b.unknown })
		defer known() // after a refusal was sent
		values, err := do(known)
		b.reply(s, c, values, err)
	})
}

func (b *Bus) act(ctx context.Context, c bus.Call, act action, known func()) ([]any, error) {
	if c.Signature != act.signature {
		return nil, refuse(errBadArgs, "arguments of type %q, want %q", c.Signature, act.signature)
	}
	request, err := act.read(c.Args)
	if err != nil {
		return nil, refuse(BusErrorInvalidArgs, "%v", err)
	}
	uid, err := b.authority.allows(ctx, c, act.id, known)
	if err != nil {
		// Every user can cause this at any rate.
		b.Log.Debug("refused on the bus", "method", c.Member, "uid", uid, "err", err)
		return nil, err
	}
	select {
	case b.slots <- struct{}{}:
		defer func() { <-b.slots }()
	default:
		return nil, refuse(errTooMuch, "%d calls go on already", maxClients)
	}
	by := personOf(status.ViaBus, uid)
	b.Log.Info("asked on the bus",
		"method", c.Member, "uid", uid, "images", request.Images, "all", request.All, "user", by.User)
	ctx, stop := b.untilVanished(ctx, c)
	defer stop()
	return act.do(status.WithActor(ctx, by), b.Daemon, request)
}

// vanishedEvery is how often a call asks whether its caller is still on the bus.
const vanishedEvery = time.Second

// untilVanished returns a context that ends when the caller leaves the bus: what has not begun by then is not done. Who
// wants no answer is expected to leave. A question that the bus does not answer says nothing.
func (b *Bus) untilVanished(ctx context.Context, c bus.Call) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if c.NoReply {
		return ctx, cancel
	}
	go func() {
		tick := time.NewTicker(vanishedEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			isThere := true
			err := b.authority.ask(ctx, c, askTimeout, bus.Driver("NameHasOwner", c.Sender), &isThere)
			if err == nil && !isThere {
				cancel()
			}
		}
	}()
	return ctx, cancel
}

// allowed returns the methods that the caller may call.
func (b *Bus) allowed(ctx context.Context, c bus.Call, known func()) ([]any, error) {
	if c.Signature != "" {
		return nil, refuse(errBadArgs, "arguments of type %q, want none", c.Signature)
	}
	methods, err := b.authority.allowed(ctx, c, known)
	return []any{methods}, err
}

func doCheck(ctx context.Context, d Daemon, _ busRequest) ([]any, error) {
	s, err := d.Check(ctx, nil)
	return []any{string(s.State), outside.Line(s.Reason, maxText)}, err
}

func doApply(ctx context.Context, d Daemon, r busRequest) ([]any, error) {
	out, err := d.Apply(ctx, r.apply(), nil)
	return answerWith(out, err)
}

func doRollback(ctx context.Context, d Daemon, r busRequest) ([]any, error) {
	out, err := d.Rollback(ctx, r.Which, nil)
	return answerWith(out, err)
}

func doHold(ctx context.Context, d Daemon, r busRequest) ([]any, error) {
	var until time.Time
	if r.until > 0 {
		until = time.UnixMicro(int64(r.until)).UTC()
	}
	held, err := d.Hold(ctx, r.Images, r.All, r.reason, until)
	return []any{append([]string{}, held...)}, err
}

func doUnhold(ctx context.Context, d Daemon, r busRequest) ([]any, error) {
	held, err := d.Unhold(ctx, r.Images, r.All)
	if err == nil && len(held) == 0 {
		err = refuse(BusErrorNothingToDo, "nothing of it was held")
	}
	return []any{held}, err
}

// outcome is an status.Outcome on the bus: (ssss).
type outcome struct{ PodManifest, Change, Result, Reason string }

// answerWith returns the outcome of each pod manifest, or an error that is the worst of
// them and names all.
func answerWith(outcomes []status.Outcome, err error) ([]any, error) {
	if err != nil {
		return nil, err
	}
	list := []outcome{}
	var lines []string
	seen := map[status.Result]bool{}
	for _, o := range outcomes {
		seen[o.Result] = true
		list = append(list, outcome{
			outside.Line(o.PodManifest, maxWord), outside.Line(o.Change, maxWord), string(o.Result),
			outside.Line(o.Reason, maxWord),
		})
		if o.Result != status.ResultNothing {
			lines = append(lines, strings.TrimSuffix(fmt.Sprintf("%s: %s: %s", o.PodManifest, o.Result, o.Reason), ": "))
		}
	}
	text := strings.Join(lines, "; ")
	switch {
	case seen[status.ResultFailed]:
		return nil, refuse(BusErrorFailed, "%s", text)
	case seen[status.ResultCanceled], seen[status.ResultContinues]: // the caller hears it if it is still there
		return nil, refuse(BusErrorFailed, "%s", text)
	case seen[status.ResultHeld]:
		return nil, refuse(BusErrorHeld, "%s", text)
	case seen[status.ResultApplied], seen[status.ResultRolledBack]:
		return []any{list}, nil
	default:
		return nil, refuse(BusErrorNothingToDo, "nothing to do")
	}
}

const (
	// maxNames bounds the names of one call: more than a node has images.
	maxNames = 256
	// lastMicrosecond is the end of the year 9999, which JSON can write.
	lastMicrosecond = 253402300799999999
)

// read checks the arguments. Names are logged, so they have to be printable.
func (a action) read(args []any) (busRequest, error) {
	var r busRequest
	if err := dbus.Store(args, a.into(&r)...); err != nil {
		return r, err
	}
	if len(r.Images) > maxNames || len(r.expect) > maxNames {
		return r, fmt.Errorf("more than %d images", maxNames)
	}
	names := slices.Clone(r.Images)
	for _, e := range r.expect {
		names = append(names, e.Image)
	}
	for _, name := range names {
		unprintable := func(c rune) bool { return !unicode.IsPrint(c) || c == unicode.ReplacementChar }
		if name == "" || len(name) > maxWord || strings.ContainsFunc(name, unprintable) {
			return r, fmt.Errorf("image %q: not a name", outside.Line(name, maxWord))
		}
	}
	if r.until > lastMicrosecond {
		return r, errors.New("until: want microseconds since 1970, or 0")
	}
	if a.which {
		if err := checkApply(r.apply()); err != nil {
			return r, err
		}
	}
	return r, oneLine(r.reason)
}
