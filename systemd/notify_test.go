// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(inhibitOn); address != "" {
		os.Exit(inhibitUntilKilled(address))
	}
	if path := os.Getenv(activatedAt); path != "" {
		os.Exit(activated(path))
	}
	goleak.VerifyTestMain(m)
}

// manager is the service manager's end: a real datagram socket, read without blocking, so that it also works in a
// synctest bubble.
type manager struct{ fd int }

// listen creates a manager and announces it to the process. The environment belongs to the process, so these tests do
// not run in parallel.
func listen(t *testing.T, watchdog time.Duration) manager {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, unix.Close(fd)) })
	path := filepath.Join(t.TempDir(), "notify")
	require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	t.Setenv("WATCHDOG_USEC", "")
	if watchdog > 0 {
		t.Setenv("WATCHDOG_USEC", strconv.FormatInt(watchdog.Microseconds(), 10))
	}
	return manager{fd}
}

// received returns every message that has arrived.
func (m manager) received(t *testing.T) []string {
	t.Helper()
	var messages []string
	buffer := make([]byte, 4096)
	for {
		n, _, err := unix.Recvfrom(m.fd, buffer, unix.MSG_DONTWAIT)
		if err == unix.EAGAIN {
			return messages
		}
		require.NoError(t, err)
		messages = append(messages, string(buffer[:n]))
	}
}

func notifier(t *testing.T) *Notifier {
	t.Helper()
	n, err := NewNotifier(slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return n
}

func TestMessages(t *testing.T) {
	m := listen(t, 0)
	n := notifier(t)
	n.Ready("next check at 12:00")
	n.Status("pulling velum")
	n.Stopping("done")
	assert.Equal(t, []string{
		"READY=1\nSTATUS=next check at 12:00",
		"STATUS=pulling velum",
		"STOPPING=1\nSTATUS=done",
	}, m.received(t))
}

func TestReloadingCarriesTheMonotonicClock(t *testing.T) {
	m := listen(t, 0)
	var before, after unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &before))
	notifier(t).Reloading()
	require.NoError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &after))

	messages := m.received(t)
	require.Len(t, messages, 1)
	found := regexp.MustCompile(`^RELOADING=1\nMONOTONIC_USEC=(\d+)\nEXTEND_TIMEOUT_USEC=900000000$`).FindStringSubmatch(messages[0])
	require.NotNil(t, found, messages[0])
	at, err := strconv.ParseInt(found[1], 10, 64)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, at, before.Nano()/1000)
	assert.LessOrEqual(t, at, after.Nano()/1000)
}

func TestStatusIsOneShortLine(t *testing.T) {
	m := listen(t, 0)
	n := notifier(t)
	n.Status("velum\nREADY=1\x00\x1b[31m")
	n.Status(strings.Repeat("a", maxStatus-1) + "ä")
	assert.Equal(t, []string{
		"STATUS=velum READY=1  [31m",
		"STATUS=" + strings.Repeat("a", maxStatus-3) + "…",
	}, m.received(t))
}

func TestOnlyTheLoopSendsHeartbeats(t *testing.T) {
	const limit = time.Minute
	m := listen(t, limit)
	synctest.Test(t, func(t *testing.T) {
		n := notifier(t)
		pass := func(d time.Duration) []string {
			<-time.After(d)
			synctest.Wait()
			return m.received(t)
		}
		assert.Empty(t, pass(2*limit), "a loop that never called Heartbeat is not alive")
		n.Heartbeat()
		n.Heartbeat()
		assert.Equal(t, []string{"WATCHDOG=1"}, pass(limit), "a loop that turned once and hangs is not alive")
		n.Heartbeat()
		assert.Len(t, pass(0), 1)
	})
}

// Whenever a step reports before the loop sleeps, heartbeats are at most five eighths of the limit apart: the rest is a
// margin for a slow machine.
func TestHeartbeatsComeInTime(t *testing.T) {
	const limit = time.Minute
	m := listen(t, limit)
	for phase := range 30 {
		synctest.Test(t, func(t *testing.T) {
			n := notifier(t)
			var silent time.Duration
			for _, pause := range []time.Duration{time.Duration(phase) * time.Second, n.Every(), n.Every()} {
				n.Heartbeat()
				if len(m.received(t)) > 0 {
					silent = 0
				}
				<-time.After(pause)
				silent += pause
				require.LessOrEqual(t, silent, limit*5/8, phase)
			}
		})
	}
}

// With WatchdogSec= of three minutes an idle daemon wakes for heartbeats 40 times an hour; frequent progress sends no
// more.
func TestHeartbeatsAreRare(t *testing.T) {
	const limit = 3 * time.Minute
	m := listen(t, limit)
	for every, want := range map[time.Duration]int{limit / 2: 40, time.Second: 157} {
		synctest.Test(t, func(t *testing.T) {
			n := notifier(t)
			require.Equal(t, limit/2, n.Every())
			sent := 0
			for began := time.Now(); time.Since(began) < time.Hour; {
				n.Heartbeat()
				sent += len(m.received(t))
				<-time.After(every)
			}
			assert.Equal(t, want, sent)
		})
	}
}

func TestWithoutAWatchdogNoHeartbeatIsSent(t *testing.T) {
	m := listen(t, 0)
	n := notifier(t)
	assert.Zero(t, n.Every())
	n.Heartbeat()
	assert.Empty(t, m.received(t))
}

func TestWatchdogOfAnotherProcessIsIgnored(t *testing.T) {
	listen(t, time.Minute)
	t.Setenv("WATCHDOG_PID", "1")
	assert.Zero(t, notifier(t).Every())
}

func TestInvalidWatchdogLimitIsRejected(t *testing.T) {
	listen(t, 0)
	for _, text := range []string{"soon", "-1", "0"} {
		t.Setenv("WATCHDOG_USEC", text)
		_, err := NewNotifier(slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, "systemd: watchdog", text)
	}
}

func TestWithoutAManagerNothingIsSentOrLogged(t *testing.T) {
	listen(t, 0)
	t.Setenv("NOTIFY_SOCKET", "")
	var log bytes.Buffer
	n, err := NewNotifier(slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	n.Ready("")
	n.Reloading()
	n.Stopping("")
	assert.Empty(t, log.String())
}

func TestUnreachableManagerIsLogged(t *testing.T) {
	listen(t, 0)
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	var log bytes.Buffer
	n, err := NewNotifier(slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	n.Ready("x")
	assert.Contains(t, log.String(), "service manager not notified")
	assert.Contains(t, log.String(), "READY=1")
}
