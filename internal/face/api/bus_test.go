// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
	"github.com/kubic-project/image-update-agent/internal/face/bus/bustest"
)

// The policies that the tests' buses have: the one that is shipped, and one for a
// polkit of the test.
const (
	shippedPolicy = "../../../packaging/dbus/org.opensuse.ImageUpdateAgent1.conf"
	polkitPolicy  = "testdata/polkit.conf"
)

// watched is a daemon whose status and progress a test sets, and its answers between
// two calls.
type watched struct {
	*daemon

	mu      sync.Mutex
	now     status.Status
	changed chan struct{}
	hear    func(status.Progress)
}

func newWatched(d *daemon) *watched {
	return &watched{daemon: d, now: d.status, changed: make(chan struct{})}
}

func (w *watched) answer(set func(*daemon)) {
	w.daemon.mu.Lock()
	defer w.daemon.mu.Unlock()
	set(w.daemon)
}

func (w *watched) Status() status.Status { w.mu.Lock(); defer w.mu.Unlock(); return w.now }

func (w *watched) Changed() <-chan struct{} { w.mu.Lock(); defer w.mu.Unlock(); return w.changed }

func (w *watched) Listen(f func(status.Progress)) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hear = f
	return func() { w.mu.Lock(); defer w.mu.Unlock(); w.hear = nil }
}

func (w *watched) become(s status.Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = s
	close(w.changed)
	w.changed = make(chan struct{})
}

// say reports progress; false: nobody listens.
func (w *watched) say(p status.Progress) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hear == nil {
		return false
	}
	w.hear(p)
	return true
}

// journal is a log that can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), text)
}

// show runs the object on a bus until the test ends.
func show(t *testing.T, address string, d Watched) *journal {
	t.Helper()
	return showWith(t, address, d, time.Minute)
}

// showWith does so with the patience to have with polkit.
func showWith(t *testing.T, address string, d Watched, patience time.Duration) *journal {
	t.Helper()
	log, end := running(t.Context(), address, d, patience)
	t.Cleanup(end)
	return log
}

// running runs the object on a bus until its end is asked for, and waits for that.
func running(ctx context.Context, address string, d Watched, patience time.Duration) (log *journal, end func()) {
	log = &journal{}
	b := NewBus(BusOptions{
		Address: address, MachineID: "0123456789abcdef0123456789abcdef", Daemon: d, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	b.firstWait, b.lastWait = time.Millisecond, 10*time.Millisecond
	b.authority.soon, b.authority.typingIn = patience, patience
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); b.Run(ctx) }()
	return log, func() { stop(); <-ended }
}

// until waits for what another process brings about.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, time.Millisecond, what)
}

// onBus runs the object on a system bus of its own, and waits until it is there.
func onBus(t *testing.T, d Watched) bustest.Bus {
	t.Helper()
	return on(t, bustest.System(t, shippedPolicy, polkitPolicy), d)
}

// on runs the object on a bus, and waits until it is there.
func on(t *testing.T, b bustest.Bus, d Watched) bustest.Bus {
	t.Helper()
	log := show(t, b.Address, d)
	until(t, "on the bus", func() bool { return log.count("joined the system bus") == 1 })
	return b
}

// call calls a method of the object, without a word to the user.
func call(t *testing.T, conn *dbus.Conn, method string, args ...any) *dbus.Call {
	t.Helper()
	if !strings.Contains(method, ".") {
		method = BusName + "." + method
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // an answer that never comes is a failure, not a hang
	defer cancel()
	return conn.Object(BusName, busPath).CallWithContext(ctx, method, 0, args...)
}

// errorName is the name of an error on the bus.
func errorName(t *testing.T, err error) string {
	t.Helper()
	var e dbus.Error
	require.ErrorAs(t, err, &e)
	return e.Name
}

func TestBusComesBack(t *testing.T) {
	t.Parallel()
	system := bustest.System(t, shippedPolicy)
	log := show(t, system.Address, newWatched(&daemon{status: status.Status{State: status.StateCurrent}}))
	until(t, "there", func() bool { return log.count(`msg="joined the system bus"`) == 1 })
	system.Stop()
	until(t, "gone", func() bool { return log.count(`msg="cannot join the system bus"`) > 0 })
	system.Again(t)
	until(t, "there again", func() bool { return log.count(`msg="joined the system bus"`) == 2 })
	var state string
	require.NoError(t, system.Connect(t).Object(BusName, busPath).StoreProperty(BusName+".State", &state))
	assert.Equal(t, "current", state)
	told := log.count("cannot join the system bus")
	assert.LessOrEqual(t, told, 3, "lost, and the ways in which nobody is there, each once")
	system.Stop()
	until(t, "told again", func() bool { return log.count("cannot join the system bus") > told })
}

func TestBusWaitsForItsName(t *testing.T) {
	t.Parallel()
	system := bustest.System(t, shippedPolicy)
	other := system.Connect(t)
	_, err := other.RequestName(BusName, dbus.NameFlagDoNotQueue)
	require.NoError(t, err)
	log := show(t, system.Address, newWatched(&daemon{}))
	until(t, "told", func() bool { return log.count("another program owns the name") == 1 })
	_, err = other.ReleaseName(BusName)
	require.NoError(t, err)
	until(t, "there", func() bool { return log.count(`msg="joined the system bus"`) == 1 })
	assert.Equal(t, 1, log.count("another program owns the name"), "however often it was tried")
}

// A node without a bus: told once, tried ever more rarely, and the end is heard at
// once. A loop that does not wait would not let the bubble's time pass.
func TestNoBusAtAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &journal{}
		b := NewBus(BusOptions{Address: bus.At(t.TempDir() + "/none"), Daemon: newWatched(&daemon{}), Log: slog.New(slog.NewTextHandler(log, nil))})
		tries := 0
		b.join = func(ctx context.Context, address, name string) (*bus.Service, error) {
			tries++
			return bus.Join(ctx, address, name)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); b.Run(ctx) }()
		time.Sleep(24 * time.Hour) //nolint:forbidigo // the bubble's time
		synctest.Wait()
		assert.InDelta(t, 24*12, tries, 10, "soon at first, every five minutes at last")
		assert.Equal(t, 1, log.count("\n"))
		assert.Equal(t, 1, log.count(`level=INFO msg="cannot join the system bus" err="there is no system bus"`))
		stop()
		<-ended
	})
}

// The end is heard while the bus lives on.
func TestTheEndOfTheObject(t *testing.T) {
	t.Parallel()
	system := bustest.System(t, shippedPolicy)
	log, end := running(t.Context(), system.Address, newWatched(&daemon{}), time.Minute)
	until(t, "on the bus", func() bool { return log.count("joined the system bus") == 1 })
	end()
	until(t, "the name is free", func() bool {
		var there bool
		conn := system.Connect(t)
		require.NoError(t, conn.BusObject().CallWithContext(t.Context(), "org.freedesktop.DBus.NameHasOwner", 0, BusName).Store(&there))
		require.NoError(t, conn.Close())
		return !there
	})
	assert.Zero(t, log.count("cannot join the system bus"), "that is no trouble")
}

// The end does not wait for a bus that hangs, nor does the work.
func TestABusThatHangsHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	begun, free, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	d := newWatched(&daemon{check: func(func(status.Progress)) (status.Status, error) {
		defer close(done)
		close(begun)
		<-free
		return status.Status{}, nil
	}})
	system := bustest.System(t, shippedPolicy)
	log, end := running(t.Context(), system.Address, d, time.Minute)
	until(t, "on the bus", func() bool { return log.count("joined the system bus") == 1 })
	system.Connect(t).Object(BusName, busPath).Go(BusName+".Check", 0, make(chan *dbus.Call, 1))
	<-begun
	until(t, "listens", func() bool { return d.say(status.Progress{}) })
	system.Freeze(t)
	for n := range 100_000 {
		d.say(status.Progress{Reference: strings.Repeat("x", n%200)})
	}
	for range 1000 {
		d.become(status.Status{State: status.StateStaged, Reason: strings.Repeat("x", maxText)})
		d.become(status.Status{State: status.StateCurrent})
	}
	close(free)
	<-done
	end()
	system.Thaw(t)
}

func TestAPersonWhoHangsUpOnTheBusIsNotTheEndOfTheWork(t *testing.T) {
	t.Parallel()
	begun, free, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var worked context.Context
	d := newWatched(&daemon{
		context: func(ctx context.Context) { worked = ctx; close(begun) },
		check: func(func(status.Progress)) (status.Status, error) {
			<-free
			done <- worked.Err()
			return status.Status{}, nil
		},
	})
	system := onBus(t, d)
	conn := system.Connect(t)
	conn.Object(BusName, busPath).Go(BusName+".Check", 0, make(chan *dbus.Call, 1))
	<-begun
	require.NoError(t, conn.Close())
	system.Stop() // and the bus goes, too
	close(free)
	require.NoError(t, <-done)
}
