// SPDX-License-Identifier: Apache-2.0

package reboot_test

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/node/reboot"
)

func write(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}

func TestScheduledShutdown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"reboot": {
			"USEC=1763695800000000\nWARN_WALL=1\nMODE=reboot\nWALL_MESSAGE=soon\n",
			"reboot is scheduled at 2025-11-21T03:30:00Z",
		},
		"poweroff":        {"USEC=1763695800000000\nMODE=poweroff\n", "poweroff is scheduled at 2025-11-21T03:30:00Z"},
		"no end of line":  {"MODE=reboot\nUSEC=1763695800000000", "reboot is scheduled at 2025-11-21T03:30:00Z"},
		"empty":           {"", "shutdown is scheduled at an unknown time"},
		"garbage":         {"\x00\x01\x02USEC=\nUSEC=soon\nMODE", " is scheduled at an unknown time"},
		"what comes late": {strings.Repeat("\n", 8<<10) + "MODE=reboot", "shutdown is scheduled at an unknown time"},
		"too much":        {"MODE=" + strings.Repeat("x", 1<<20), strings.Repeat("x", 297) + "… is scheduled at an unknown time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			write(t, root, "run/systemd/shutdown/scheduled", c.text)
			isHeld(t, reboot.Node{Root: root}.Holds(t.Context()), status.HoldReboot, c.want)
			require.NoError(t, os.Remove(filepath.Join(root, "run/systemd/shutdown/scheduled")))
			assert.Empty(t, reboot.Node{Root: root}.Holds(t.Context()), "cancelled")
		})
	}
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "run/systemd/shutdown/scheduled"), 0o755))
	holds := reboot.Node{Root: root}.Holds(t.Context())
	isHeld(t, holds, status.HoldReboot, "scheduled shutdown: "+root+"/run/systemd/shutdown/scheduled: not a regular file")
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"run/reboot-required", "var/run/reboot-required", "run/reboot-needed", "var/run/reboot-needed",
	} {
		root := t.TempDir()
		write(t, root, name, "")
		isHeld(t, reboot.Node{Root: root}.Holds(t.Context()), status.HoldReboot, "/"+name+" requests a reboot")
		require.NoError(t, os.Remove(filepath.Join(root, name)))
		assert.Empty(t, reboot.Node{Root: root}.Holds(t.Context()))
	}
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "run"), 0o755))
	require.NoError(t, os.Symlink("reboot-required", filepath.Join(root, "run/reboot-required")))
	holds := reboot.Node{Root: root}.Holds(t.Context())
	require.Len(t, holds, 1, "a place that cannot be looked at")
	assert.Contains(t, holds[0].Reason, "too many levels of symbolic links")
}

// serveVarlink listens as rebootmgr 3.x and passes each connection with the call's bytes to talk.
func serveVarlink(t *testing.T, root string, talk func(conn net.Conn, call string)) {
	t.Helper()
	path := filepath.Join(root, "run/rebootmgr/rebootmgrd.socket")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	require.NoError(t, err)
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer func() { _ = conn.Close() }()
				call, err := bufio.NewReader(conn).ReadString(0)
				if err == nil {
					talk(conn, call)
				}
			})
		}
	})
}

// answer returns a talk that sends one message.
func answer(text string) func(net.Conn, string) {
	return func(conn net.Conn, _ string) { _, _ = conn.Write([]byte(text + "\x00")) }
}

// untilGone waits until the caller has hung up.
func untilGone(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)) }

func TestRebootmgrOverVarlink(t *testing.T) {
	t.Parallel()
	const good = `{"parameters":{"RebootStatus":0}}`
	for name, c := range map[string]struct {
		talk func(net.Conn, string)
		want string
	}{
		"none requested": {answer(good), ""},
		"requested": {
			answer(`{"parameters":{"RebootStatus":1,"RequestedMethod":1}}`),
			"rebootmgr: a reboot was requested and comes as soon as rebootmgr allows it",
		},
		"at its time": {
			answer(`{"parameters":{"RebootStatus":2,"RequestedMethod":1,"RebootTime":"Sat 2026-11-21 03:30:00 CET"}}`),
			"rebootmgr: a reboot was requested and comes at Sat 2026-11-21 03:30:00 CET",
		},
		"soft": {
			answer(`{"parameters":{"RebootStatus":2,"RequestedMethod":2,"RebootTime":"\n\u001b[1m"}}`),
			"rebootmgr: a soft reboot was requested and comes at   [1m",
		},
		"not to be":       {answer(`{"parameters":{"RebootStatus":2,"RequestedMethod":1,"RebootDisabled":true}}`), ""},
		"what came later": {answer(`{"parameters":{"RebootStatus":0,"More":[1,{"a":null}]},"continues":false}`), ""},
		"in pieces": {func(conn net.Conn, _ string) {
			for _, b := range []byte(good + "\x00") {
				_, _ = conn.Write([]byte{b})
			}
		}, ""},
		"and stays": {func(conn net.Conn, _ string) { answer(good)(conn, ""); untilGone(conn) }, ""},
		"an error": {
			answer(`{"error":"org.varlink.service.MethodNotFound\n","parameters":{}}`),
			"rebootmgr: varlink: org.varlink.service.MethodNotFound ",
		},
		"no status":     {answer(`{"parameters":{}}`), "rebootmgr: the answer has no RebootStatus"},
		"no parameters": {answer(`{}`), "rebootmgr: varlink: an answer without parameters"},
		"another type":  {answer(`{"parameters":{"RebootStatus":"2"}}`), "rebootmgr: varlink: json: cannot unmarshal*"},
		"garbage":       {answer("\x01\x02HTTP/1.1 400\r\n"), "rebootmgr: varlink: invalid character*"},
		"nothing":       {answer(""), "rebootmgr: varlink: unexpected end of JSON input"},
		"gone":          {func(net.Conn, string) {}, "rebootmgr: varlink: connection closed before the end of the answer"},
		"gone in the middle": {
			func(conn net.Conn, _ string) { _, _ = conn.Write([]byte(good)) },
			"rebootmgr: varlink: connection closed before the end of the answer",
		},
		"too much": {
			answer(strings.Repeat(" ", 64<<10) + good), "rebootmgr: varlink: answer larger than 64 KiB",
		},
		"without end": {func(conn net.Conn, _ string) {
			for {
				if _, err := conn.Write([]byte(strings.Repeat("x", 1<<10))); err != nil {
					return
				}
			}
		}, "rebootmgr: varlink: answer larger than 64 KiB"},
		"silence": {func(conn net.Conn, _ string) { untilGone(conn) }, "rebootmgr: no answer in time"},
		"too slow": {func(conn net.Conn, _ string) {
			ticks := time.NewTicker(50 * time.Millisecond)
			defer ticks.Stop()
			for range ticks.C {
				if _, err := conn.Write([]byte(" ")); err != nil {
					return
				}
			}
		}, "rebootmgr: no answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			serveVarlink(t, root, c.talk)
			isHeld(t, reboot.Node{Root: root}.Holds(t.Context()), status.HoldReboot, c.want)
		})
	}
}

// It calls only Status.
func TestVarlinkCall(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	calls := make(chan string, 8)
	serveVarlink(t, root, func(conn net.Conn, call string) {
		calls <- call
		answer(`{"parameters":{"RebootStatus":0}}`)(conn, "")
		rest, _ := bufio.NewReader(conn).ReadString(0)
		calls <- rest
	})
	require.Empty(t, reboot.Node{Root: root}.Holds(t.Context()))
	assert.JSONEq(t, `{"method":"org.openSUSE.rebootmgr.Status","parameters":{}}`, strings.TrimSuffix(<-calls, "\x00"))
	assert.Empty(t, <-calls)
}
