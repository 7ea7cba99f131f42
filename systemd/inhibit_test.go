// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/internal/face/bus"
	"github.com/kubic-project/image-update-agent/internal/face/bus/bustest"
)

// inhibitOn makes the test binary a process that holds a lock until it is
// killed, on the bus of that address.
const inhibitOn = "SYSTEMD_TEST_INHIBIT_ON"

func inhibitUntilKilled(address string) int {
	if _, err := (Inhibitor{Bus: address}).Inhibit(context.Background(), "a test"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("held")
	_, _ = io.Copy(io.Discard, os.Stdin) // does not end; without cgo, Go would end a program that waits for nothing
	return 0
}

// logind is the part of org.freedesktop.login1(5) that issues locks: each is the writing end of a FIFO, and ends when
// no process has it open.
type logind struct {
	mu    sync.Mutex
	asked [][4]string
	locks []*os.File // the reading ends
	given []*os.File
}

func (l *logind) inhibit(what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	reading, writing, err := os.Pipe()
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	l.asked = append(l.asked, [4]string{what, who, why, mode})
	l.locks, l.given = append(l.locks, reading), append(l.given, writing)
	return dbus.UnixFD(writing.Fd()), nil
}

func (l *logind) questions() [][4]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked
}

// serveLogind serves a logind on a bus.
func serveLogind(t *testing.T, b bustest.Bus) *logind {
	t.Helper()
	l := &logind{}
	serveInhibit(t, b, l.inhibit)
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, file := range append(l.locks, l.given...) {
			_ = file.Close() // some are closed already
		}
	})
	return l
}

func serveInhibit(t *testing.T, b bustest.Bus, inhibit any) {
	t.Helper()
	b.Serve(t, "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager", map[string]any{"Inhibit": inhibit})
}

// lock returns the n-th lock, whose writing end only the caller has.
func (l *logind) lock(t *testing.T, n int) *os.File {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Greater(t, len(l.locks), n)
	_ = l.given[n].Close() // it may be closed already
	return l.locks[n]
}

// isLocked reports whether a process holds the lock; it waits for the release for at most patience milliseconds.
func isLocked(t *testing.T, lock *os.File, patience int) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(lock.Fd()), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, patience)
		if err == unix.EINTR {
			continue
		}
		require.NoError(t, err)
		return fds[0].Revents&unix.POLLHUP == 0
	}
}

// longEnough is the time limit for expected events, in milliseconds.
const longEnough = 60_000

func TestAShutdownIsDelayedUntilRelease(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t, "")
	l := serveLogind(t, b)
	first, err := Inhibitor{Bus: b.Address}.Inhibit(t.Context(), "velum.yaml is between\ntwo states")
	require.NoError(t, err)
	second, err := Inhibitor{Bus: b.Address}.Inhibit(t.Context(), "again")
	require.NoError(t, err)
	assert.Equal(t, [][4]string{
		{"shutdown", "image-update-agent", "velum.yaml is between two states", "delay"},
		{"shutdown", "image-update-agent", "again", "delay"},
	}, l.questions())
	assert.True(t, isLocked(t, l.lock(t, 0), 0))
	assert.True(t, isLocked(t, l.lock(t, 1), 0))
	first()
	assert.False(t, isLocked(t, l.lock(t, 0), longEnough))
	assert.True(t, isLocked(t, l.lock(t, 1), 0), "each has its own")
	first()
	second()
	assert.False(t, isLocked(t, l.lock(t, 1), longEnough))
}

func TestKilledProcessReleasesTheLock(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t, "")
	l := serveLogind(t, b)
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), inhibitOn+"="+b.Address)
	child.Stderr = t.Output()
	_, err := child.StdinPipe()
	require.NoError(t, err)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	said, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "held\n", said)
	assert.True(t, isLocked(t, l.lock(t, 0), 0))
	require.NoError(t, child.Process.Kill())
	require.ErrorContains(t, child.Wait(), "killed")
	assert.False(t, isLocked(t, l.lock(t, 0), longEnough))
}

// Without logind there is no lock to take.
func TestNodesWithoutLogind(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{
		"no bus":    "",
		"no socket": bus.At(filepath.Join(t.TempDir(), "none")),
		"no logind": bustest.Start(t, "").Address,
	} {
		release, err := Inhibitor{Bus: address}.Inhibit(t.Context(), "a test")
		require.NoError(t, err, name)
		require.NotNil(t, release, name)
		release()
	}
}

func TestInhibitErrorsOfLogind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		inhibit any
		want    string
	}{
		"silence": {
			func(string, string, string, string) (dbus.UnixFD, *dbus.Error) { <-t.Context().Done(); return 0, nil },
			"org.freedesktop.login1: no answer in time",
		},
		"denied by polkit": {
			func(string, string, string, string) (dbus.UnixFD, *dbus.Error) {
				return 0, dbus.NewError("org.freedesktop.DBus.Error.AccessDenied", []any{"Permission denied"})
			},
			"org.freedesktop.login1: org.freedesktop.DBus.Error.AccessDenied: Permission denied",
		},
		"another answer": {
			func(string, string, string, string) (string, *dbus.Error) { return "yes", nil },
			"org.freedesktop.login1: want one file descriptor as the answer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bustest.Start(t, "")
			serveInhibit(t, b, c.inhibit)
			release, err := Inhibitor{Bus: b.Address}.Inhibit(t.Context(), "a test")
			require.EqualError(t, err, "systemd: delay a shutdown: "+c.want)
			release()
		})
	}
	t.Run("denied by policy", func(t *testing.T) {
		t.Parallel()
		b := bustest.Start(t, "")
		serveLogind(t, b)
		b.Deny(t, "org.freedesktop.login1")
		release, err := Inhibitor{Bus: b.Address}.Inhibit(t.Context(), "a test")
		require.ErrorContains(t, err, "org.freedesktop.DBus.Error.AccessDenied")
		release()
	})
	t.Run("a bus without a voice", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "bus")
		listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
		require.NoError(t, err)
		defer func() { _ = listener.Close() }()
		release, err := Inhibitor{Bus: bus.At(path)}.Inhibit(t.Context(), "a test")
		require.ErrorContains(t, err, "no answer in time")
		release()
	})
}

func TestInhibitEndsWithTheContext(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	serveInhibit(t, b, func(string, string, string, string) (dbus.UnixFD, *dbus.Error) {
		cancel()
		<-t.Context().Done()
		return 0, nil
	})
	release, err := Inhibitor{Bus: b.Address}.Inhibit(ctx, "a test")
	require.ErrorIs(t, err, context.Canceled)
	release()
}

// TestInhibitClosesItsConnection does not run in parallel, because it counts the process's open files.
func TestInhibitClosesItsConnection(t *testing.T) {
	b := bustest.Start(t, "")
	l := serveLogind(t, b)
	count := func() int {
		found, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(found)
	}
	before := count()
	for n := range 20 {
		release, err := Inhibitor{Bus: b.Address}.Inhibit(t.Context(), "a test")
		require.NoError(t, err)
		release()
		require.NoError(t, l.lock(t, n).Close())
	}
	assert.Equal(t, before, count())
}
