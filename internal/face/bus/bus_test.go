// SPDX-License-Identifier: Apache-2.0

package bus_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

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

func take(ctx context.Context, address string) (*os.File, error) {
	return bus.Take(ctx, address, bus.Question{
		Service: echo, Path: "/org/example/Echo", Method: echo + ".Open", Args: []any{"hello"},
	})
}

// open is a file with that content, read from its beginning.
func open(t *testing.T, text string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	file, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// answers are what a service may say that was asked for a descriptor, with the
// error; empty: it is taken.
func answers(t *testing.T) map[string]struct {
	open any
	want string
} {
	t.Helper()
	fd := dbus.UnixFD(open(t, "content").Fd())
	return map[string]struct {
		open any
		want string
	}{
		"one":            {func(string) (dbus.UnixFD, *dbus.Error) { return fd, nil }, ""},
		"two":            {func(string) (dbus.UnixFD, dbus.UnixFD, *dbus.Error) { return fd, fd, nil }, "want one file descriptor"},
		"with a word":    {func(string) (dbus.UnixFD, string, *dbus.Error) { return fd, "x", nil }, "want one file descriptor"},
		"in a list":      {func(string) ([]dbus.UnixFD, *dbus.Error) { return []dbus.UnixFD{fd}, nil }, "want one file descriptor"},
		"in a variant":   {func(string) (dbus.Variant, *dbus.Error) { return dbus.MakeVariant(fd), nil }, "want one file descriptor"},
		"a number":       {func(string) (uint32, *dbus.Error) { return 0, nil }, "want one file descriptor"},
		"nothing":        {func(string) *dbus.Error { return nil }, "want one file descriptor"},
		"an error":       {func(string) (dbus.UnixFD, *dbus.Error) { return fd, dbus.NewError("a.b", []any{"no\nway"}) }, "a.b: no way"},
		"a bare error":   {func(string) (dbus.UnixFD, *dbus.Error) { return fd, dbus.NewError("a.b", nil) }, "a.b"},
		"other question": {func() (dbus.UnixFD, *dbus.Error) { return fd, nil }, "InvalidArgs"},
	}
}

func closesOnExec(t *testing.T, file *os.File) bool {
	t.Helper()
	flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFD, 0)
	require.NoError(t, err)
	return flags&unix.FD_CLOEXEC != 0
}

// openFiles counts the descriptors of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	found, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(found)
}

// TestTake is not parallel, and counts what the process has open.
func TestTake(t *testing.T) {
	for name, answer := range answers(t) {
		t.Run(name, func(t *testing.T) {
			b := bustest.Start(t, "")
			_, err := take(t.Context(), b.Address)
			require.ErrorIs(t, err, bus.ErrAbsent)
			b.Serve(t, echo, "/org/example/Echo", echo, map[string]any{"Open": answer.open})
			before := openFiles(t)
			for range 3 {
				file, err := take(t.Context(), b.Address)
				if answer.want != "" {
					require.ErrorContains(t, err, echo+": ")
					require.ErrorContains(t, err, answer.want)
					require.Nil(t, file)
					continue
				}
				require.NoError(t, err)
				data, err := io.ReadAll(io.NewSectionReader(file, 0, 100))
				require.NoError(t, err)
				require.Equal(t, "content", string(data), "the connection is closed, the file is not")
				require.NoError(t, file.Close())
			}
			require.Equal(t, before, openFiles(t), "descriptors that nobody closed")
		})
	}
}

// What somebody else sends to our connection before the answer is neither taken
// for it nor kept.
func TestTakeAmongMessages(t *testing.T) {
	wanted, other := open(t, "wanted"), open(t, "other")
	b := bustest.Start(t, "")
	var conn *dbus.Conn
	ready := make(chan struct{})
	conn = b.Serve(t, echo, "/org/example/Echo", echo, map[string]any{
		"Open": func(asked dbus.Sender, _ string) (dbus.UnixFD, *dbus.Error) {
			<-ready
			for range 3 {
				fds := []dbus.UnixFD{dbus.UnixFD(other.Fd()), dbus.UnixFD(other.Fd())}
				conn.Send(&dbus.Message{Type: dbus.TypeSignal, Body: []any{fds}, Headers: map[dbus.HeaderField]dbus.Variant{
					dbus.FieldDestination: dbus.MakeVariant(string(asked)), dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath("/")),
					dbus.FieldInterface: dbus.MakeVariant("a.b"), dbus.FieldMember: dbus.MakeVariant("C"),
					dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(fds)),
				}}, nil)
			}
			return dbus.UnixFD(wanted.Fd()), nil
		},
	})
	close(ready)
	before := openFiles(t)
	file, err := take(t.Context(), b.Address)
	require.NoError(t, err)
	data, err := io.ReadAll(io.NewSectionReader(file, 0, 100))
	require.NoError(t, err)
	assert.Equal(t, "wanted", string(data))
	require.NoError(t, file.Close())
	assert.Equal(t, before, openFiles(t))
}

func TestTakeIsNotForChildren(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t, "")
	fd := dbus.UnixFD(open(t, "content").Fd())
	b.Serve(t, echo, "/org/example/Echo", echo, map[string]any{
		"Open": func(string) (dbus.UnixFD, *dbus.Error) { return fd, nil },
	})
	file, err := take(t.Context(), b.Address)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	assert.True(t, closesOnExec(t, file), "a program that is started meanwhile must not hold the lock")
}

// A service that is not there is not started for it, unless that is asked for.
func TestTakeStartsNobody(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t, "")
	b.Startable(t, echo, "/bin/false")
	_, err := take(t.Context(), b.Address)
	require.ErrorIs(t, err, bus.ErrAbsent)
	_, err = bus.Take(t.Context(), b.Address, bus.Question{Service: echo, Path: "/", Method: echo + ".Open", Start: true})
	require.ErrorContains(t, err, "Spawn")
}

func TestTakeIsNotAllowed(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t, "")
	b.Serve(t, echo, "/org/example/Echo", echo, map[string]any{})
	b.Deny(t, echo)
	_, err := take(t.Context(), b.Address)
	require.ErrorContains(t, err, "org.freedesktop.DBus.Error.AccessDenied")
}

// A bus that passes no descriptors. TestBrokenBuses has what else may be wrong with one: dial is the same.
func TestTakeFromBrokenBuses(t *testing.T) {
	t.Parallel()
	_, err := take(t.Context(), listen(t, says("OK 1234deadbeef\r\n", "ERROR\r\n")))
	require.ErrorContains(t, err, "authentication failed: ERROR")
}

// says answers line after line, and then listens.
func says(lines ...string) func(net.Conn, *bufio.Reader) {
	return func(conn net.Conn, r *bufio.Reader) {
		for _, line := range lines {
			_, _ = r.ReadString('\n')
			say(conn, line)
		}
		drain(r)
	}
}
