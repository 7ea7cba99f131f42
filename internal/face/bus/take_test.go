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
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/internal/face/bus"
	"github.com/kubic-project/image-update-agent/internal/face/bus/bustest"
)

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

func TestTakeFromNobody(t *testing.T) {
	t.Parallel()
	_, err := take(t.Context(), bus.At(filepath.Join(t.TempDir(), "none")))
	require.ErrorIs(t, err, bus.ErrNone)
	_, err = take(t.Context(), "tcp:host=localhost")
	require.ErrorContains(t, err, "not a unix socket")
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

// A bus that does not speak as it should ends the question, and soon.
func TestTakeFromBrokenBuses(t *testing.T) {
	t.Parallel()
	const hello = "OK 1234deadbeef\r\n"
	for name, c := range map[string]struct {
		talk func(net.Conn, *bufio.Reader)
		want string
	}{
		"silent":            {func(_ net.Conn, r *bufio.Reader) { drain(r) }, "no answer in time"},
		"gone":              {func(net.Conn, *bufio.Reader) {}, echo},
		"refuses":           {says("REJECTED EXTERNAL\r\n"), "authentication failed: REJECTED EXTERNAL"},
		"no descriptors":    {says(hello, "ERROR\r\n"), "authentication failed: ERROR"},
		"silent after that": {says(hello, "AGREE_UNIX_FD\r\n"), "no answer in time"},
		"garbage":           {says(hello, "AGREE_UNIX_FD\r\n"+strings.Repeat("garbage!", 64)), "byte order"},
		"a message of 128 MiB": {func(conn net.Conn, _ *bufio.Reader) {
			say(conn, hello+"AGREE_UNIX_FD\r\nl\x02\x00\x01\x00\x00\xf0\x07\x01\x00\x00\x00\x00\x00\x00\x00")
			for say(conn, strings.Repeat("\x00", 4<<10)) {
				continue
			}
		}, "more than 256 KiB"},
		"a line without end": {func(conn net.Conn, _ *bufio.Reader) {
			for say(conn, strings.Repeat("x", 4<<10)) {
				continue
			}
		}, "a line of more than 1024 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := listen(t, c.talk)
			patience := time.Minute
			if c.want == "no answer in time" {
				patience = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := take(ctx, address)
			require.ErrorContains(t, err, c.want)
		})
	}
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

func TestTakeInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	b := bustest.Start(t, "")
	b.Serve(t, echo, "/org/example/Echo", echo, map[string]any{
		"Open": func(string) (dbus.UnixFD, *dbus.Error) { cancel(); <-t.Context().Done(); return 0, nil },
	})
	_, err := take(ctx, b.Address)
	require.ErrorIs(t, err, context.Canceled)
}
