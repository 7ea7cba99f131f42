// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/godbus/dbus/v5"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/bus"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// The errors by which a method ends, as the verbs of the command line do by exit
// codes: 1 Failed, 2 UnknownImage and InvalidArgs, 3 NothingToDo, 4 Held.
const (
	BusErrorFailed       = BusName + ".Error.Failed"
	BusErrorUnknownImage = BusName + ".Error.UnknownImage"
	BusErrorInvalidArgs  = BusName + ".Error.InvalidArgs"
	BusErrorNothingToDo  = BusName + ".Error.NothingToDo"
	BusErrorHeld         = BusName + ".Error.Held"
)

// action is a method that acts.
type action struct {
	id        string // of polkit's action
	signature string
	read      func(args []any) (busRequest, error)
	do        func(ctx context.Context, d Daemon, r busRequest) ([]any, error)
}

// actions by method.
var actions = map[string]action{
	"Check":    {BusName + ".check", "", readNothing, doCheck},
	"Apply":    {BusName + ".apply", "asb", readApply, doApply},
	"Rollback": {BusName + ".rollback", "as", readRollback, doRollback},
	"Hold":     {BusName + ".hold", "asbts", readHold, doHold},
	"Unhold":   {BusName + ".unhold", "asb", readUnhold, doUnhold},
}

// busRequest is what a method was called with, checked.
type busRequest struct {
	Which

	retry  bool
	until  time.Time // zero: no end
	reason string
}

// begin starts an acting call. It goes on when its caller, or the bus, goes away.
// Who calls is asked of the bus for some at a time, and the others wait, so that
// nobody is kept out by those who may do nothing.
func (b *Bus) begin(ctx context.Context, s *bus.Service, c bus.Call, act action) error {
	select {
	case b.unknown <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	b.acting.Go(func() {
		known := sync.OnceFunc(func() { <-b.unknown })
		defer known() // who was refused has been told
		values, err := b.act(ctx, c, act, known)
		if err != nil {
			err = fail(s, c, err)
		} else {
			err = s.Reply(c, values...)
		}
		if err != nil {
			b.Log.Debug("answer not sent", "method", c.Member, "err", err)
		}
	})
	return nil
}

func (b *Bus) act(ctx context.Context, c bus.Call, act action, known func()) ([]any, error) {
	if c.Signature != act.signature {
		return nil, refuse(errBadArgs, "arguments of type %q, want %q", c.Signature, act.signature)
	}
	request, err := act.read(c.Args)
	if err != nil {
		return nil, err
	}
	uid, err := b.authority.allows(ctx, c, act.id, known)
	if err != nil {
		// Everybody can have this said as often as they like.
		b.Log.Debug("refused on the bus", "method", c.Member, "uid", uid, "err", err)
		return nil, err
	}
	select {
	case b.slots <- struct{}{}:
		defer func() { <-b.slots }()
	default:
		return nil, refuse(errTooMuch, "%d calls go on already", maxClients)
	}
	b.Log.Info("asked on the bus", "method", c.Member, "uid", uid, "images", request.Images, "all", request.All)
	values, err := act.do(ctx, b.Daemon, request)
	return values, named(err)
}

// named gives an error of the daemon its name on the bus.
func named(err error) error {
	_, has := errors.AsType[busError](err)
	switch {
	case err == nil || has:
		return err
	case errors.Is(err, agent.ErrUnknownImage):
		return busError{BusErrorUnknownImage, err.Error()}
	case errors.Is(err, agent.ErrHoldEnds), errors.Is(err, agent.ErrReason), errors.Is(err, agent.ErrWhich):
		return busError{BusErrorInvalidArgs, err.Error()}
	case errors.Is(err, agent.ErrHeld):
		return busError{BusErrorHeld, err.Error()}
	default:
		return busError{BusErrorFailed, err.Error()}
	}
}

func doCheck(ctx context.Context, d Daemon, _ busRequest) ([]any, error) {
	s, err := d.Check(ctx, nil)
	return []any{string(s.State), outside.Line(s.Reason, maxText)}, err
}

func doApply(ctx context.Context, d Daemon, r busRequest) ([]any, error) {
	out, err := d.Apply(ctx, r.Images, r.retry, nil)
	return became(out, err)
}

func doRollback(ctx context.Context, d Daemon, r busRequest) ([]any, error) {
	if len(r.Images) == 0 {
		return nil, agent.ErrWhich
	}
	out, err := d.Rollback(ctx, r.Images, nil)
	return became(out, err)
}

func doHold(ctx context.Context, d Daemon, r busRequest) ([]any, error) {
	held, err := d.Hold(ctx, r.Images, r.All, r.reason, r.until)
	return []any{append([]string{}, held...)}, err
}

func doUnhold(ctx context.Context, d Daemon, r busRequest) ([]any, error) {
	held, err := d.Unhold(ctx, r.Images, r.All)
	if err == nil && len(held) == 0 {
		err = busError{BusErrorNothingToDo, "nothing of it was held"}
	}
	return []any{held}, err
}

// outcome is an agent.Outcome on the bus: (ssss).
type outcome struct{ PodManifest, Change, Result, Reason string }

// became answers with what became of each pod manifest, or with the worst of it as
// an error that tells of all.
func became(outcomes []agent.Outcome, err error) ([]any, error) {
	if err != nil {
		return nil, err
	}
	list := []outcome{}
	var lines []string
	seen := map[agent.Result]bool{}
	for _, o := range outcomes {
		seen[o.Result] = true
		list = append(list, outcome{
			outside.Line(o.PodManifest, maxWord), outside.Line(o.Change, maxWord), string(o.Result),
			outside.Line(o.Reason, maxWord),
		})
		if o.Result != agent.ResultNothing {
			lines = append(lines, strings.TrimSuffix(fmt.Sprintf("%s: %s: %s", o.PodManifest, o.Result, o.Reason), ": "))
		}
	}
	text := strings.Join(lines, "; ")
	switch {
	case seen[agent.ResultFailed]:
		return nil, busError{BusErrorFailed, text}
	case seen[agent.ResultHeld]:
		return nil, busError{BusErrorHeld, text}
	case seen[agent.ResultApplied], seen[agent.ResultBack]:
		return []any{list}, nil
	default:
		return nil, busError{BusErrorNothingToDo, "nothing to do"}
	}
}

func readNothing([]any) (busRequest, error) { return busRequest{}, nil }

func readApply(args []any) (busRequest, error) {
	var r busRequest
	return r.checked(dbus.Store(args, &r.Images, &r.retry))
}

func readRollback(args []any) (busRequest, error) {
	var r busRequest
	return r.checked(dbus.Store(args, &r.Images))
}

func readHold(args []any) (busRequest, error) {
	var r busRequest
	var until uint64
	err := dbus.Store(args, &r.Images, &r.All, &until, &r.reason)
	if until > lastMicrosecond {
		return r, busError{BusErrorInvalidArgs, "until: want microseconds since 1970, or 0"}
	}
	if until > 0 {
		r.until = time.UnixMicro(int64(until)).UTC()
	}
	return r.checked(errors.Join(err, r.check(), oneLine(r.reason)))
}

func readUnhold(args []any) (busRequest, error) {
	var r busRequest
	err := dbus.Store(args, &r.Images, &r.All)
	return r.checked(errors.Join(err, r.check()))
}

const (
	// maxNames bounds the names of one call: more than a node has images.
	maxNames = 256
	// lastMicrosecond is the end of the year 9999, which JSON can write.
	lastMicrosecond = 253402300799999999
)

// checked refuses what is no request, and names that nobody would want to read in a
// log.
func (r busRequest) checked(err error) (busRequest, error) {
	if err != nil {
		return r, refuse(BusErrorInvalidArgs, "%v", err)
	}
	if len(r.Images) > maxNames {
		return r, refuse(BusErrorInvalidArgs, "more than %d images", maxNames)
	}
	for _, name := range r.Images {
		unprintable := func(c rune) bool { return !unicode.IsPrint(c) || c == unicode.ReplacementChar }
		if name == "" || len(name) > maxWord || strings.ContainsFunc(name, unprintable) {
			return r, refuse(BusErrorInvalidArgs, "image %q: not a name", outside.Line(name, maxWord))
		}
	}
	return r, nil
}
