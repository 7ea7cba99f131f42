// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/godbus/dbus/v5"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

func TestMethodsDoWhatTheSocketDoes(t *testing.T) {
	t.Parallel()
	d := newWatched(&daemon{})
	system := onBus(t, d)
	conn := system.Connect(t)

	d.answer(func(d *daemon) {
		d.check = func(func(status.Progress)) (status.Status, error) {
			return status.Status{State: status.StateHeld, Reason: "because"}, nil
		}
	})
	var state, reason string
	require.NoError(t, call(t, conn, "Check").Store(&state, &reason))
	assert.Equal(t, []string{"held", "because"}, []string{state, reason})
	for _, method := range []string{"ReleaseLock", "ForgetCatalog"} {
		require.NoError(t, call(t, conn, method).Store(&state, &reason))
		assert.Equal(t, []string{"held", "forgotten"}, []string{state, reason}, method)
	}
	require.NoError(t, call(t, conn, "EnableLocalRegistry", "registry.suse.com", true).Store(&state, &reason))
	assert.Equal(t, "enabled registry.suse.com true", reason)
	require.NoError(t, call(t, conn, "DisableLocalRegistry", "registry.suse.com").Store(&state, &reason))
	assert.Equal(t, "disabled registry.suse.com", reason)
	assert.Equal(t, BusErrorNothingToDo, errorName(t, call(t, conn, "EnableLocalRegistry", "there.example", false).Err))

	named := make(chan []string, 1)
	d.answer(func(d *daemon) {
		d.apply = func(n []string, _ func(status.Progress)) ([]status.Outcome, error) {
			named <- n
			return []status.Outcome{
				{PodManifest: "etcd.yaml", Result: status.ResultNothing},
				{PodManifest: "velum.yaml", Change: "rebuild", Result: status.ResultApplied, Reason: "running, not checked: web"},
			}, nil
		}
	})
	var outcomes []outcome
	want := []outcome{{"etcd.yaml", "", "nothing", ""}, {"velum.yaml", "rebuild", "applied", "running, not checked: web"}}
	require.NoError(t, call(t, conn, "Apply", []string{"velum"}, false, false, noneShown).Store(&outcomes))
	assert.Equal(t, want, outcomes)
	assert.Equal(t, []string{"velum"}, <-named)
	require.NoError(t, call(t, conn, "Apply", []string{}, true, true, []plan.Shown{{Image: "velum", Digest: digest.FromString("1")}}).Store(&outcomes))
	assert.Equal(t, []string{"*", "again", "velum=" + digest.FromString("1").String()}, <-named)
	require.NoError(t, call(t, conn, "Rollback", []string{"velum"}, false).Store(&outcomes))
	assert.Equal(t, want, outcomes)
	assert.Equal(t, []string{"velum", "back"}, <-named)

	end := time.Date(2026, time.December, 24, 0, 0, 0, 1000, time.UTC)
	d.answer(func(d *daemon) {
		d.hold = func(n []string, all bool, reason string, until time.Time) ([]string, error) {
			assert.Equal(t, []any{[]string{"velum"}, false, "because", end}, []any{n, all, reason, until})
			return []string{"a/velum"}, nil
		}
	})
	var held []string
	require.NoError(t, call(t, conn, "Hold", []string{"velum"}, false, uint64(end.UnixMicro()), "because").Store(&held))
	assert.Equal(t, []string{"a/velum"}, held)
	d.answer(func(d *daemon) {
		d.hold = func(n []string, all bool, reason string, until time.Time) ([]string, error) {
			assert.True(t, len(n) == 0 && all && reason == "" && until.IsZero(), "0 is no end")
			return []string{"*"}, nil
		}
	})
	require.NoError(t, call(t, conn, "Hold", []string{}, true, uint64(0), "").Store(&held))
	d.answer(func(d *daemon) {
		d.resume = func(n []string, all bool) ([]string, error) {
			assert.True(t, len(n) == 0 && all)
			return []string{"*", "a/velum"}, nil
		}
	})
	require.NoError(t, call(t, conn, "Resume", []string{}, true).Store(&held))
	assert.Equal(t, []string{"*", "a/velum"}, held)
}

// endings are what the daemon may say, and what the caller is told.
func endings() map[string]struct {
	outcomes []status.Outcome
	err      error
	name     string
	text     string
} {
	applied := status.Outcome{PodManifest: "a.yaml", Result: status.ResultApplied}
	held := status.Outcome{PodManifest: "b.yaml", Result: status.ResultHeld, Reason: "busy: an update"}
	failed := status.Outcome{PodManifest: "c.yaml", Result: status.ResultFailed, Reason: "not ready\n\xff"}
	nothing := status.Outcome{PodManifest: "d.yaml", Result: status.ResultNothing}
	return map[string]struct {
		outcomes []status.Outcome
		err      error
		name     string
		text     string
	}{
		"one is held":     {[]status.Outcome{applied, held, nothing}, nil, BusErrorHeld, "a.yaml: applied; b.yaml: held: busy: an update"},
		"one has failed":  {[]status.Outcome{held, failed}, nil, BusErrorFailed, "b.yaml: held: busy: an update; c.yaml: failed: not ready  "},
		"nothing to do":   {[]status.Outcome{nothing}, nil, BusErrorNothingToDo, "nothing to do"},
		"nothing at all":  {nil, nil, BusErrorNothingToDo, "nothing to do"},
		"no such image":   {nil, fmt.Errorf("frob: %w", plan.ErrUnknownImage), BusErrorUnknownImage, "frob: no such image or pod manifest"},
		"the end":         {nil, agent.ErrEnded, BusErrorFailed, "the daemon is stopping"},
		"held by another": {nil, fmt.Errorf("grain: %w", release.ErrHeld), BusErrorHeld, "grain: held"},
	}
}

// A caller that leaves the bus, as `busctl` does after 25 seconds, takes back what has not begun.
func TestACallerWhoLeavesTheBusIsNoticed(t *testing.T) {
	t.Parallel()
	began, gone := make(chan context.Context, 2), make(chan struct{})
	d := newWatched(&daemon{
		context: func(ctx context.Context) { began <- ctx },
		apply: func(names []string, _ func(status.Progress)) ([]status.Outcome, error) {
			<-gone
			return nil, errors.New("ended")
		},
	})
	system := onBus(t, d)
	waits, silent := system.Connect(t), system.Connect(t)
	waits.Object(BusName, busPath).Go(BusName+".Apply", 0, nil, []string{"velum"}, false, false, noneShown)
	first := <-began
	silent.Object(BusName, busPath).Go(BusName+".Apply", dbus.FlagNoReplyExpected, nil, []string{"velum"}, false, false, noneShown)
	second := <-began
	require.NoError(t, silent.Close())
	require.NoError(t, waits.Close())
	<-first.Done()
	require.NoError(t, second.Err(), "who wants no reply need not stay")
	close(gone)
}

func TestEndingsHaveNames(t *testing.T) {
	t.Parallel()
	d := newWatched(&daemon{})
	system := onBus(t, d)
	conn := system.Connect(t)
	for name, c := range endings() {
		d.answer(func(d *daemon) {
			d.apply = func([]string, func(status.Progress)) ([]status.Outcome, error) { return c.outcomes, c.err }
		})
		for _, err := range []error{
			call(t, conn, "Apply", []string{}, true, false, noneShown).Err, call(t, conn, "Rollback", []string{}, true).Err,
		} {
			require.Error(t, err, name)
			assert.Equal(t, c.name, errorName(t, err), name)
			assert.EqualError(t, err, c.text, name)
		}
	}
	d.answer(func(d *daemon) {
		d.resume = func([]string, bool) ([]string, error) { return nil, nil }
	})
	assert.Equal(t, BusErrorNothingToDo, errorName(t, call(t, conn, "Resume", []string{}, true).Err))
	d.answer(func(d *daemon) {
		d.check = func(func(status.Progress)) (status.Status, error) {
			return status.Status{}, errors.New("the registry is away")
		}
	})
	assert.Equal(t, BusErrorFailed, errorName(t, call(t, conn, "Check").Err))
	d.answer(func(d *daemon) {
		d.hold = func([]string, bool, string, time.Time) ([]string, error) { return nil, agent.ErrHoldEnds }
	})
	assert.Equal(t, BusErrorInvalidArgs, errorName(t, call(t, conn, "Hold", []string{}, true, uint64(1), "").Err))
	d.answer(func(d *daemon) {
		d.hold = func([]string, bool, string, time.Time) ([]string, error) { return nil, agent.ErrReason }
	})
	assert.Equal(t, BusErrorInvalidArgs, errorName(t, call(t, conn, "Hold", []string{}, true, uint64(1), "").Err))
}

// An error on the bus has no fields, so each outcome is a signal before it.
func TestEachOutcomeIsASignal(t *testing.T) {
	t.Parallel()
	d := newWatched(&daemon{})
	system := onBus(t, d)
	conn := system.Connect(t)
	require.NoError(t, conn.AddMatchSignalContext(t.Context(), dbus.WithMatchMember("Ended")))
	signals := make(chan *dbus.Signal, 10)
	conn.Signal(signals)
	d.answer(func(d *daemon) {
		d.apply = func([]string, func(status.Progress)) ([]status.Outcome, error) {
			return []status.Outcome{
				{PodManifest: "a.yaml", Change: "rebuild", Result: status.ResultApplied},
				{PodManifest: "b.yaml", Result: status.ResultHeld, Hold: "busy", Reason: "busy: an update", ErrorKind: "record"},
			}, nil
		}
	})
	for _, method := range []string{"Apply", "Rollback"} {
		assert.Equal(t, BusErrorHeld, errorName(t, call(t, conn, method, everyAction[method]...).Err))
		for _, want := range []string{
			`[map[change:"rebuild" errorKind:"" hold:"" podManifest:"a.yaml" reason:"" result:"applied"]]`,
			`[map[change:"" errorKind:"record" hold:"busy" podManifest:"b.yaml" reason:"busy: an update" result:"held"]]`,
		} {
			assert.Equal(t, want, fmt.Sprint((<-signals).Body), method)
		}
	}
}

// noneShown is an apply of whatever is offered.
var noneShown = []plan.Shown{}

// badCalls are refused before anybody is asked, or anything is done.
var badCalls = map[string]struct {
	method string
	args   []any
	want   string
}{
	"no name":                    {"Apply", []any{[]string{""}, false, false, noneShown}, `"": not a valid name`},
	"a line end":                 {"Rollback", []any{[]string{"velum\nroot logged in"}, false}, `"velum root logged in": not a valid name`},
	"a long name":                {"Apply", []any{[]string{strings.Repeat("x", 513)}, false, false, noneShown}, "not a valid name"},
	"a registry with a line end": {"EnableLocalRegistry", []any{"a\nb", true}, `"a b": not a valid name`},
	"many names":                 {"Rollback", []any{make([]string, 257), false}, "more than 256 images"},
	// The dialog of a page whose pod manifest has gone sends an empty list: it must not mean all of the node.
	"nothing to apply":       {"Apply", []any{[]string{}, false, false, noneShown}, "give names of images or all images, not both"},
	"nothing to retry":       {"Apply", []any{[]string{}, false, true, noneShown}, "give names of images or all images, not both"},
	"an image and all":       {"Apply", []any{[]string{"velum"}, true, false, noneShown}, "give names of images or all images, not both"},
	"nothing to roll back":   {"Rollback", []any{[]string{}, false}, "give names of images or all images, not both"},
	"no digest":              {"Apply", []any{[]string{"velum"}, false, false, []plan.Shown{{Image: "velum"}}}, `expect velum: ""`},
	"an unnamed digest":      {"Apply", []any{[]string{"velum"}, false, false, []plan.Shown{{}}}, `"": not a valid name`},
	"many digests":           {"Apply", []any{[]string{}, true, false, make([]plan.Shown, 257)}, "more than 256 images"},
	"neither images nor all": {"Hold", []any{[]string{}, false, uint64(0), ""}, "give names of images or all images, not both"},
	"images and all":         {"Hold", []any{[]string{"velum"}, true, uint64(0), ""}, "give names of images or all images, not both"},
	"none to resume":         {"Resume", []any{[]string{}, false}, "give names of images or all images, not both"},
	"a reason of two lines":  {"Hold", []any{[]string{"velum"}, false, uint64(0), "a\nb"}, "control character"},
	"the year 10000":         {"Hold", []any{[]string{"velum"}, false, uint64(lastMicrosecond + 1), ""}, "until: "},
	"the end of time":        {"Hold", []any{[]string{"velum"}, false, uint64(math.MaxUint64), ""}, "until: "},
}

func TestBadCallsAreRefused(t *testing.T) {
	t.Parallel()
	system := onBus(t, newWatched(&daemon{})) // a call of it would panic
	conn := system.Connect(t)
	for name, c := range badCalls {
		err := call(t, conn, c.method, c.args...).Err
		require.Error(t, err, name)
		assert.Equal(t, BusErrorInvalidArgs, errorName(t, err), name)
		assert.ErrorContains(t, err, c.want, name)
	}
}

// As many calls go on as the socket has clients, and what is more is told so.
func TestCallsAreBounded(t *testing.T) {
	t.Parallel()
	begun, free := make(chan struct{}, maxClients), make(chan struct{})
	system := onBus(t, newWatched(&daemon{check: func(func(status.Progress)) (status.Status, error) {
		begun <- struct{}{}
		<-free
		return status.Status{}, nil
	}}))
	conn := system.Connect(t)
	answers := make(chan *dbus.Call, maxClients)
	for range maxClients {
		conn.Object(BusName, busPath).Go(BusName+".Check", 0, answers)
	}
	for range maxClients {
		<-begun
	}
	assert.Equal(t, errTooMuch, errorName(t, call(t, conn, "Check").Err))
	require.NoError(t, call(t, conn, peerFace+".Ping").Err, "who reads needs no slot")
	close(free)
	for range maxClients {
		require.NoError(t, (<-answers).Err)
	}
	until(t, "free again", func() bool { return call(t, conn, "Check").Err == nil })
}

// FuzzBusRequests reads requests made of any text: what is taken has names that can
// stand in a log, and a time that JSON can write.
func FuzzBusRequests(f *testing.F) {
	f.Add("velum\x00registry.suse.com/caasp/v4/velum", false, uint64(0), "because")
	f.Add("", true, uint64(1_700_000_000_000_000), "")
	f.Add("ä\x00b", false, uint64(lastMicrosecond), "a\x7fb")
	f.Add(strings.Repeat("x\x00", 300), false, uint64(math.MaxUint64), strings.Repeat("y", 300))
	f.Fuzz(func(t *testing.T, names string, all bool, until uint64, reason string) {
		if !utf8.ValidString(names) || !utf8.ValidString(reason) {
			return // the bus lets nothing else through
		}
		var images []string
		if names != "" {
			images = strings.Split(names, "\x00")
		}
		for member, args := range map[string][]any{
			"Check": {}, "Apply": {images, all, !all, []plan.Shown{{Image: reason}}}, "Rollback": {images, all}, "Resume": {images, all}, "Hold": {images, all, until, reason},
		} {
			act := actions[member]
			require.Equal(t, act.signature, dbus.SignatureOf(args...).String())
			r, err := act.read(args)
			if err != nil {
				continue
			}
			assert.LessOrEqual(t, len(r.Images), maxNames)
			for _, name := range r.Images {
				assert.NotEmpty(t, name)
				assert.Equal(t, name, outside.Line(name, maxWord))
			}
			_, err = time.UnixMicro(int64(r.until)).UTC().MarshalJSON()
			require.NoError(t, err)
			assert.True(t, member != "Hold" || r.until == until)
			assert.True(t, member != "Hold" && member != "Resume" || r.All != (len(r.Images) > 0))
		}
		for range 2 {
			_, err := act(t.Context(), names, reason)
			require.Error(t, err)
		}
	})
}

// act has a daemon that must not be asked be asked with what no signature has.
func act(ctx context.Context, args ...any) ([]any, error) {
	request, err := actions["Hold"].read(args)
	if err != nil {
		return nil, err
	}
	return doHold(ctx, nil, request)
}
