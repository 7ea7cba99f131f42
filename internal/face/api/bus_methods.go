// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/godbus/dbus/v5"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
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
	"Resume": {BusName + ".resume", "asb", func(r *busRequest) []any { return []any{&r.Images, &r.All} }, true, doResume},
	"ReleaseLock": {BusName + ".release-lock", "", func(*busRequest) []any { return nil }, false, func(
		ctx context.Context, d Daemon, _ busRequest,
	) ([]any, error) {
		return stateOf(d.ReleaseLock(ctx, nil))
	}},
	"ForgetCatalog": {BusName + ".forget-catalog", "", func(*busRequest) []any { return nil }, false, func(
		ctx context.Context, d Daemon, _ busRequest,
	) ([]any, error) {
		return stateOf(d.ForgetCatalog(ctx, nil))
	}},
	"EnableLocalRegistry": {BusName + ".enable-local-registry", "sb", func(r *busRequest) []any {
		return []any{&r.registry, &r.gate}
	}, false, func(ctx context.Context, d Daemon, r busRequest) ([]any, error) {
		return stateOf(d.EnableLocalRegistry(ctx, r.registry, r.gate))
	}},
	"DisableLocalRegistry": {BusName + ".disable-local-registry", "s", func(r *busRequest) []any {
		return []any{&r.registry}
	}, false, func(ctx context.Context, d Daemon, r busRequest) ([]any, error) {
		return stateOf(d.DisableLocalRegistry(ctx, r.registry))
	}},
}

// busRequest is what a method was called with.
type busRequest struct {
	plan.Which

	retry  bool
	expect []plan.Shown // (ss)
	until  uint64       // microseconds since 1970; 0: no end
	reason string

	registry string
	gate     bool

	to emitter // of the signals that belong to the answer
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

func (b *Bus) act(ctx context.Context, to emitter, c bus.Call, act action, known func()) ([]any, error) {
	if c.Signature != act.signature {
		return nil, refuse(errBadArgs, "arguments of type %q, want %q", c.Signature, act.signature)
	}
	request, err := act.read(c.Args)
	if err != nil {
		return nil, refuse(BusErrorInvalidArgs, "%v", err)
	}
	request.to = to
	uid, err := b.authority.allows(ctx, c, act.id, known)
	if err != nil {
		// Every user can cause this at any rate.
		b.Log.Debug("request on the bus refused", "method", c.Member, "uid", uid, "err", err)
		return nil, err
	}
	select {
	case b.slots <- struct{}{}:
		defer func() { <-b.slots }()
	default:
		return nil, refuse(errTooMuch, "too many calls: %d are running", maxClients)
	}
	by := personOf(status.ViaBus, uid)
	b.Log.Info("request on the bus",
		"method", c.Member, "uid", uid, "images", request.Images, "all", request.All,
		"registry", request.registry, "user", by.User)
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
	return stateOf(d.Check(ctx, nil))
}

// stateOf answers with the state of the node and its reason.
func stateOf(s status.Status, err error) ([]any, error) {
	return []any{string(s.State), outside.Line(s.Reason, maxText)}, err
}

func doApply(ctx context.Context, d Daemon, r busRequest) ([]any, error) {
	return r.answer(d.Apply(ctx, r.apply(), nil))
}

func doRollback(ctx context.Context, d Daemon, r busRequest) ([]any, error) {
	return r.answer(d.Rollback(ctx, r.Which, nil))
}

func doHold(ctx context.Context, d Daemon, r busRequest) ([]any, error) {
	var until time.Time
	if r.until > 0 {
		until = time.UnixMicro(int64(r.until)).UTC()
	}
	held, err := d.Hold(ctx, r.Images, r.All, r.reason, until)
	return []any{append([]string{}, held...)}, err
}

func doResume(ctx context.Context, d Daemon, r busRequest) ([]any, error) {
	held, err := d.Resume(ctx, r.Images, r.All)
	if err == nil && len(held) == 0 {
		err = refuse(BusErrorNothingToDo, "there was no such hold")
	}
	return []any{held}, err
}

// outcome is an status.Outcome on the bus: (ssss).
type outcome struct{ PodManifest, Change, Result, Reason string }

// answer returns the outcome of each pod manifest, or an error that is the worst of them and names all. Before that it
// sends the signal Ended for each: an error on the bus has no fields.
func (r busRequest) answer(outcomes []status.Outcome, err error) ([]any, error) {
	if err != nil {
		return nil, err
	}
	for _, o := range outcomes[:min(len(outcomes), maxNames)] {
		if err := r.to.Emit(busPath, BusName, "Ended", encode(o)); err != nil {
			return nil, err
		}
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
	if r.registry != "" { // an empty one is no registry
		names = append(names, r.registry)
	}
	for _, name := range names {
		unprintable := func(c rune) bool { return !unicode.IsPrint(c) || c == unicode.ReplacementChar }
		if name == "" || len(name) > maxWord || strings.ContainsFunc(name, unprintable) {
			return r, fmt.Errorf("%q: not a valid name", outside.Line(name, maxWord))
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

const (
	// askTimeout bounds a question that programs of this node answer.
	askTimeout = 10 * time.Second
	// passwordTimeout bounds one that a person answers.
	passwordTimeout = 2 * time.Minute
	// maxAsked bounds the questions to polkit at a time.
	maxAsked = maxClients / 2
)

// authority decides who may act: root, and callers that polkit allows it. If polkit is
// missing or does not answer, only root.
//
// The bus says who the caller is; the caller's process is not examined. Each question
// has a connection of its own; when that ends, polkit closes the dialog that it has
// opened.
type authority struct {
	address        string
	asked          chan struct{} // one for each question that goes on
	soon, typingIn time.Duration // askTimeout, passwordTimeout
}

func newAuthority(address string) authority {
	return authority{address, make(chan struct{}, maxAsked), askTimeout, passwordTimeout}
}

// allows returns the caller's uid, and an error if the action is not allowed. It calls
// known as soon as the caller is root, or polkit has to be asked.
func (a authority) allows(ctx context.Context, c bus.Call, action string, known func()) (uid uint32, err error) {
	return a.decides(ctx, c, known, func() error { return a.polkit(ctx, c, action) })
}

// allowed returns the methods that the caller may call without a password, sorted.
func (a authority) allowed(ctx context.Context, c bus.Call, known func()) ([]string, error) {
	c.Interactive = false
	all := slices.Sorted(maps.Keys(actions))
	may := []string{}
	uid, err := a.decides(ctx, c, known, func() error {
		ctx, cancel := context.WithTimeout(ctx, a.soon)
		defer cancel()
		for _, method := range all {
			if a.polkit(ctx, c, actions[method].id) == nil {
				may = append(may, method)
			}
		}
		return nil
	})
	if err == nil && uid == 0 {
		may = all
	}
	return may, err
}

// decides returns the caller's uid. If it is not root, ask asks polkit.
func (a authority) decides(ctx context.Context, c bus.Call, known func(), ask func() error) (uid uint32, err error) {
	if err := a.ask(ctx, c, a.soon, bus.Driver("GetConnectionUnixUser", c.Sender), &uid); err != nil {
		return nobody, refuse(errDenied, "cannot identify the caller: %v", err)
	}
	if uid == 0 {
		known()
		return uid, nil
	}
	select {
	case a.asked <- struct{}{}:
		defer func() { <-a.asked }()
		known()
		return uid, ask()
	default:
		return uid, refuse(errTooMuch, "too many questions to polkit: %d are open", maxAsked)
	}
}

// nobody is the uid of an unknown caller.
const nobody = 65534

// subject is the caller, for polkit: (sa{sv}).
type subject struct {
	Kind    string
	Details map[string]dbus.Variant
}

// result is polkit's answer: (bba{ss}).
type result struct {
	Authorized, Challenge bool
	Details               map[string]string
}

// polkit asks polkit (its manual, "org.freedesktop.PolicyKit1.Authority").
func (a authority) polkit(ctx context.Context, c bus.Call, action string) error {
	const allowUserInteraction = 1
	flags, timeout := uint32(0), a.soon
	if c.Interactive {
		flags, timeout = allowUserInteraction, a.typingIn
	}
	who := subject{"system-bus-name", map[string]dbus.Variant{"name": dbus.MakeVariant(c.Sender)}}
	var answer result
	err := a.ask(ctx, c, timeout, bus.Question{
		Service: "org.freedesktop.PolicyKit1", Path: "/org/freedesktop/PolicyKit1/Authority",
		Method: "org.freedesktop.PolicyKit1.Authority.CheckAuthorization", Start: true,
		Args: []any{who, action, map[string]string{}, flags, ""},
	}, &answer)
	switch {
	case errors.Is(err, bus.ErrAbsent):
		return refuse(errDenied, "only root may do this: polkit, which could allow %s, is not running", action)
	case err != nil:
		return refuse(errDenied, "only root may do this: polkit, which could allow %s: %v", action, err)
	case answer.Authorized:
		return nil
	case answer.Challenge:
		return refuse(errNeedsInteraction, "polkit requires a password for %s", action)
	default:
		return refuse(errDenied, "polkit does not allow %s", action)
	}
}

// errOtherBus: on another bus the name may belong to another caller.
var errOtherBus = errors.New("the bus was restarted after the call")

// ask asks on the bus from which the call came.
func (a authority) ask(ctx context.Context, c bus.Call, timeout time.Duration, q bus.Question, into any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := bus.Open(ctx, a.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	switch id, err := conn.ID(ctx); {
	case err != nil:
		return err
	case id != c.Bus:
		return errOtherBus
	}
	return conn.Ask(ctx, q, into)
}
