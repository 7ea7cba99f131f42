// SPDX-License-Identifier: Apache-2.0

package bus_test

import (
	"bufio"
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubic-project/image-update-agent/internal/face/bus"
	"github.com/kubic-project/image-update-agent/internal/face/bus/bustest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const echo = "org.example.Echo"

func ask(ctx context.Context, address string, into ...any) error {
	conn, err := bus.Open(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Ask(ctx, bus.Question{
		Service: echo, Path: "/org/example/Echo", Method: echo + ".Say", Args: []any{"hello"},
	}, into...)
}

func TestAsk(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t, "")
	var said string
	require.ErrorIs(t, ask(t.Context(), b.Address, &said), bus.ErrAbsent)
	conn := b.Serve(t, echo, "/org/example/Echo", echo, map[string]any{
		"Say": func(text string) (string, *dbus.Error) { return text + "!", nil },
	})
	require.NoError(t, ask(t.Context(), b.Address, &said))
	assert.Equal(t, "hello!", said)
	var number uint32
	require.Error(t, ask(t.Context(), b.Address, &number), "another type")
	require.Error(t, ask(t.Context(), b.Address, &said, &said), "another number")
	// Of a connection that was closed the bus may hear later than of our question.
	_, err := conn.ReleaseName(echo)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.ErrorIs(t, ask(t.Context(), b.Address, &said), bus.ErrAbsent)
}

func TestAskInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	b := bustest.Start(t, "")
	b.Serve(t, echo, "/org/example/Echo", echo, map[string]any{
		"Say": func(string) (string, *dbus.Error) { cancel(); <-t.Context().Done(); return "", nil },
	})
	require.ErrorIs(t, ask(ctx, b.Address), context.Canceled)
}

// peers are buses that do not speak as they should; each gets one caller.
func TestBrokenBuses(t *testing.T) {
	t.Parallel()
	const ok = "OK 1234deadbeef\r\n"
	for name, c := range map[string]struct {
		talk func(conn net.Conn, r *bufio.Reader)
		want string
	}{
		"silent":  {func(_ net.Conn, r *bufio.Reader) { drain(r) }, "system bus: no answer in time"},
		"gone":    {func(net.Conn, *bufio.Reader) {}, "system bus: "},
		"garbage": {func(conn net.Conn, r *bufio.Reader) { say(conn, "HTTP/1.1 400 Bad Request\r\n\r\n"); drain(r) }, "authentication failed: HTTP/1.1 400"},
		"a line without end": {func(conn net.Conn, _ *bufio.Reader) {
			for say(conn, strings.Repeat("x", 4<<10)) {
				continue
			}
		}, "a line of more than 1024 bytes"},
		"refuses":                 {says("REJECTED EXTERNAL\r\n"), "authentication failed: REJECTED EXTERNAL"},
		"silent once it knows us": {login(ok, func(_ net.Conn, r *bufio.Reader) { drain(r) }), "no answer in time"},
		"gone once it knows us":   {login(ok, func(net.Conn, *bufio.Reader) {}), "system bus: "},
		"garbage once it knows us": {login(ok, func(conn net.Conn, r *bufio.Reader) {
			say(conn, strings.Repeat("garbage!", 64))
			drain(r)
		}), "byte order"},
		"a message of 128 MiB": {login(ok, func(conn net.Conn, _ *bufio.Reader) {
			say(conn, "l\x02\x00\x01\x00\x00\xf0\x07\x01\x00\x00\x00\x00\x00\x00\x00")
			for say(conn, strings.Repeat("\x00", 4<<10)) {
				continue
			}
		}), "more than 256 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := listen(t, c.talk)
			patience := time.Minute
			if strings.HasSuffix(c.want, "no answer in time") {
				patience = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			require.ErrorContains(t, ask(ctx, address), c.want)
		})
	}
}

// login answers the handshake and goes on with talk.
func login(ok string, talk func(net.Conn, *bufio.Reader)) func(net.Conn, *bufio.Reader) {
	return func(conn net.Conn, r *bufio.Reader) {
		_, _ = r.ReadString('\n')
		say(conn, ok)
		_, _ = r.ReadString('\n') // BEGIN
		talk(conn, r)
	}
}

func say(conn net.Conn, text string) bool {
	_, err := conn.Write([]byte(text))
	return err == nil
}

// drain reads until the other one hangs up.
func drain(r *bufio.Reader) {
	for {
		if _, err := r.ReadByte(); err != nil {
			return
		}
	}
}

// listen has talk answer the first caller.
func listen(t *testing.T, talk func(net.Conn, *bufio.Reader)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bus")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	require.NoError(t, err)
	var done sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); done.Wait() })
	done.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		talk(conn, bufio.NewReader(conn))
	})
	return bus.At(path)
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "unix:", "tcp:host=localhost,port=1", "unix:path=", "unix:path=%zz", "autolaunch:", "unix:tmpdir=/tmp"} {
		_, err := bus.Open(t.Context(), address)
		assert.ErrorContains(t, err, "not a unix socket", address)
	}
	for _, address := range []string{
		"unix:path=/nothing/here", "unix:guid=1,path=/nothing/here", "unix:path=/nothing/here;tcp:host=localhost",
		"unix:abstract=image-update-agent-nothing-here",
	} {
		_, err := bus.Open(t.Context(), address)
		assert.ErrorIs(t, err, bus.ErrNone, address)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", "@"+t.TempDir())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = bus.Open(ctx, "unix:abstract="+l.Addr().String()[1:])
	require.ErrorIs(t, err, bus.ErrSilent, "somebody listens there")
	require.NoError(t, l.Close())
	assert.Equal(t, "unix:path=/run/dbus/system_bus_socket", bus.At("/run/dbus/system_bus_socket"))
	b := bustest.Start(t, filepath.Join(t.TempDir(), "a_b", "bus"))
	assert.ErrorIs(t, ask(t.Context(), b.Address), bus.ErrAbsent)
}

// A path with what means something in an address is found all the same.
func TestOddPaths(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a,b;c=d%20 ü")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	called := make(chan error, 1)
	l, err = new(net.ListenConfig).Listen(t.Context(), "unix", path)
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_ = conn.Close()
		}
		called <- err
	}()
	_, err = bus.Open(t.Context(), bus.At(path))
	require.Error(t, err)
	require.NotErrorIs(t, err, bus.ErrNone)
	assert.NoError(t, <-called)
}
