// SPDX-License-Identifier: Apache-2.0

package bus_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/face/bus"
	"github.com/kubic-project/image-update-agent/internal/face/bus/bustest"
)

const ours = "org.example.Ours"

func join(t *testing.T, address string) *bus.Service {
	t.Helper()
	s, err := bus.Join(t.Context(), address, ours)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// serve has a service answer all calls, each by answer, until the test ends.
func serve(t *testing.T, address string, answer func(*bus.Service, bus.Call) error) {
	t.Helper()
	s := join(t, address)
	ended := make(chan error, 1)
	go func() {
		for {
			call, err := s.Next()
			if err != nil {
				ended <- nil
				return
			}
			if err := answer(s, call); err != nil {
				ended <- err
				return
			}
		}
	}()
	t.Cleanup(func() { s.Close(); require.NoError(t, <-ended) })
}

func TestServiceAnswers(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t, "")
	calls := make(chan bus.Call, 1)
	serve(t, b.Address, func(s *bus.Service, c bus.Call) error {
		calls <- c
		if c.Member == "No" {
			return s.Fail(c, "org.example.No", "no way")
		}
		return s.Reply(c, "yes", uint32(7))
	})
	conn := b.Connect(t)
	object := conn.Object(ours, "/a/b")
	var text string
	var number uint32
	require.NoError(t, object.CallWithContext(t.Context(), "c.d.Say", 0, []string{"x", "y"}, true).Store(&text, &number))
	assert.Equal(t, "yes", text)
	assert.Equal(t, uint32(7), number)
	c := <-calls
	assert.Equal(t, conn.Names()[0], c.Sender, "as the bus says")
	assert.Equal(t, []string{"/a/b", "c.d", "Say", "asb"}, []string{c.Path, c.Interface, c.Member, c.Signature})
	assert.Equal(t, []any{[]string{"x", "y"}, true}, c.Args)
	assert.False(t, c.Interactive)

	// The library's own calls drop that flag.
	err := (<-conn.Send(&dbus.Message{Type: dbus.TypeMethodCall, Flags: dbus.FlagAllowInteractiveAuthorization, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldDestination: dbus.MakeVariant(ours), dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath("/")),
		dbus.FieldMember: dbus.MakeVariant("No"),
	}}, make(chan *dbus.Call, 1)).Done).Err
	assert.Equal(t, dbus.Error{Name: "org.example.No", Body: []any{"no way"}}, err)
	assert.True(t, (<-calls).Interactive)

	// No answer comes where none is wanted: the next one is for the next call.
	object.CallWithContext(t.Context(), "c.d.No", dbus.FlagNoReplyExpected)
	<-calls
	require.NoError(t, object.CallWithContext(t.Context(), "Say", 0).Store(&text, &number))
	assert.Empty(t, (<-calls).Interface, "it may be missing")
}

func TestServiceEmits(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t, "")
	s := join(t, b.Address)
	conn := b.Connect(t)
	require.NoError(t, conn.AddMatchSignalContext(t.Context(), dbus.WithMatchInterface(ours)))
	signals := make(chan *dbus.Signal, 1)
	conn.Signal(signals)
	require.NoError(t, s.Emit("/a", ours, "Happened", "what", uint64(3)))
	got := <-signals
	assert.Equal(t, ours+".Happened", got.Name)
	assert.Equal(t, []any{"what", uint64(3)}, got.Body)
	require.ErrorContains(t, s.Emit("/a", ours, "Happened", "\xff"), "message: ", "not sent: the bus would hang up")
	require.NoError(t, s.Emit("/a", ours, "Happened", "again"))
	assert.Equal(t, []any{"again"}, (<-signals).Body)
}

func TestJoinRefused(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t, "")
	first := join(t, b.Address)
	_, err := bus.Join(t.Context(), b.Address, ours)
	require.ErrorIs(t, err, bus.ErrTaken)
	first.Close()
	_, err = first.Next()
	require.ErrorIs(t, err, net.ErrClosed)
	// The bus may hear of the end a little later.
	require.Eventually(t, func() bool {
		s, err := bus.Join(t.Context(), b.Address, ours)
		if err == nil {
			s.Close()
		}
		return err == nil
	}, time.Minute, time.Millisecond)

	strict := bustest.System(t)
	_, err = bus.Join(t.Context(), strict.Address, ours)
	require.ErrorContains(t, err, "org.freedesktop.DBus.Error.AccessDenied")
	_, err = bus.Join(t.Context(), bus.At(t.TempDir()+"/none"), ours)
	require.ErrorIs(t, err, bus.ErrNone)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = bus.Join(ctx, b.Address, ours)
	require.ErrorIs(t, err, context.Canceled)
}

// What nobody should send is answered, and does not end the connection.
func TestServiceOutlastsCallers(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t, "")
	serve(t, b.Address, func(s *bus.Service, c bus.Call) error {
		switch {
		case errors.Is(c.Err, bus.ErrTooLarge):
			return s.Fail(c, "a.TooLarge", c.Err.Error())
		case c.Err != nil:
			return s.Fail(c, "a.Unreadable", c.Err.Error())
		default:
			return s.Reply(c, int64(len(c.Args)))
		}
	})
	conn := b.Connect(t)
	object := conn.Object(ours, "/a")
	var n int64
	for name, c := range map[string]struct {
		args []any
		want string
	}{
		"just small enough": {[]any{strings.Repeat("x", 65<<10-1500)}, ""},
		"too large":         {[]any{strings.Repeat("x", 64<<10)}, "a.TooLarge"},
		"a megabyte":        {[]any{strings.Repeat("x", 1<<20)}, "a.TooLarge"},
	} {
		var failed dbus.Error
		err := object.CallWithContext(t.Context(), "c.d.Say", 0, c.args...).Store(&n)
		if c.want == "" {
			assert.NoError(t, err, name)
			continue
		}
		if assert.ErrorAs(t, err, &failed, name) {
			assert.Equal(t, c.want, failed.Name, name)
		}
	}
	// A signal to us alone, an answer that nobody asked for, a head of 8 KiB.
	path := dbus.ObjectPath("/" + strings.Repeat("x", 8<<10))
	conn.Send(&dbus.Message{Type: dbus.TypeSignal, Body: []any{"x"}, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldDestination: dbus.MakeVariant(ours), dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath("/")),
		dbus.FieldInterface: dbus.MakeVariant("a.b"), dbus.FieldMember: dbus.MakeVariant("C"),
		dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf("x")),
	}}, nil)
	conn.Object(ours, path).Go("c.d.Say", 0, nil) // is not answered: its sender is not looked for
	require.NoError(t, object.CallWithContext(t.Context(), "c.d.Say", 0, 1, 2, 3).Store(&n))
	assert.Equal(t, int64(3), n)
}

// patched replaces bytes of what is written.
type patched struct {
	net.Conn
	old, now string
}

func (p patched) Write(b []byte) (int, error) {
	if _, err := p.Conn.Write(bytes.ReplaceAll(b, []byte(p.old), []byte(p.now))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// The bus lets dictionaries by booleans through, and godbus ends a connection on which
// they come: as a call, and as a signal to us alone.
func TestServiceOutlastsWhatCannotBeDecoded(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t, "")
	serve(t, b.Address, func(s *bus.Service, c bus.Call) error {
		if c.Err != nil {
			return s.Fail(c, "a.Unreadable", c.Err.Error())
		}
		return s.Reply(c, "read")
	})
	socket, err := net.Dial("unix", strings.TrimPrefix(b.Address, "unix:path="))
	require.NoError(t, err)
	conn, err := dbus.NewConn(patched{socket, "a{us}", "a{bs}"})
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.Auth(nil))
	require.NoError(t, conn.Hello())
	dictionary := map[uint32]string{1: "x"}
	conn.Send(&dbus.Message{Type: dbus.TypeSignal, Body: []any{dictionary}, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldDestination: dbus.MakeVariant(ours), dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath("/")),
		dbus.FieldInterface: dbus.MakeVariant("a.b"), dbus.FieldMember: dbus.MakeVariant("C"),
		dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(dictionary)),
	}}, nil)
	object := conn.Object(ours, "/a")
	var failed dbus.Error
	require.ErrorAs(t, object.CallWithContext(t.Context(), "c.d.Say", 0, dictionary).Err, &failed)
	assert.Equal(t, "a.Unreadable", failed.Name)
	require.NoError(t, object.CallWithContext(t.Context(), "c.d.Say", 0, "x").Err)
}

// TestAFloodStaysInTheBus is not parallel, and measures the memory of the process. Of
// 50 MB that nobody has asked for, one call is kept: the bus keeps the rest, or
// refuses it. With godbus' own Export each call has a goroutine, and all are kept.
func TestAFloodStaysInTheBus(t *testing.T) {
	b := bustest.Start(t, "")
	s := join(t, b.Address)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for range 10 {
		conn := b.Connect(t)
		object, body := conn.Object(ours, "/a"), strings.Repeat("x", 50<<10)
		for range 100 {
			require.NoError(t, object.CallWithContext(t.Context(), "c.d.Say", dbus.FlagNoReplyExpected, body).Err)
		}
		// It is through the bus when the bus answers what comes behind it.
		require.NoError(t, conn.BusObject().CallWithContext(t.Context(), "org.freedesktop.DBus.GetId", 0).Err)
		require.NoError(t, conn.Close())
	}
	assert.Less(t, heap(), before+8<<20)
	for range 1000 {
		_, err := s.Next()
		require.NoError(t, err)
	}
}

// The bus keeps away what would be an open file of ours.
func TestServiceTakesNoDescriptors(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t, "")
	serve(t, b.Address, func(s *bus.Service, c bus.Call) error { return s.Reply(c) })
	err := b.Connect(t).Object(ours, "/a").CallWithContext(t.Context(), "c.d.Say", 0, dbus.UnixFD(open(t, "x").Fd())).Err
	require.ErrorContains(t, err, "descriptors")
}

// A bus that does not read is given up, and nobody waits for it longer than that.
func TestServiceGivesUpABusThatHangs(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t, "")
	s := join(t, b.Address)
	b.Freeze(t)
	defer b.Thaw(t)
	text := strings.Repeat("x", 60<<10)
	var err error
	for err == nil {
		err = s.Emit("/a", ours, "Happened", text)
	}
	require.ErrorContains(t, err, "i/o timeout")
	_, err = s.Next()
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestServiceLearnsOfTheEndOfTheBus(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t, "")
	s := join(t, b.Address)
	b.Stop()
	_, err := s.Next()
	require.ErrorContains(t, err, "system bus: ")
}

func TestOtherUsers(t *testing.T) {
	t.Parallel()
	b := bustest.System(t)
	var uid uint32
	conn := b.ConnectAs(t, 65534)
	require.NoError(t, conn.BusObject().CallWithContext(t.Context(), "org.freedesktop.DBus.GetConnectionUnixUser", 0, conn.Names()[0]).Store(&uid))
	assert.Equal(t, uint32(65534), uid, "the bus believes the kernel")
}
