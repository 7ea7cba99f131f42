// SPDX-License-Identifier: Apache-2.0

package reboot_test

import (
	"bufio"
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
	"github.com/kubic-project/image-update-agent/internal/face/bus/bustest"
	"github.com/kubic-project/image-update-agent/internal/node/reboot"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

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
			registrytest.Put(t, root, "run/systemd/shutdown/scheduled", c.text)
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
		registrytest.Put(t, root, name, "")
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	rebootMgr = "org.opensuse.RebootMgr"
	tukit     = "org.opensuse.tukit"
)

// serveRebootMgr serves rebootmgr 2.x on a bus. It has no other methods, so a call that sets something would fail.
func serveRebootMgr(t *testing.T, b bustest.Bus, methods map[string]any) *dbus.Conn {
	t.Helper()
	return b.Serve(t, rebootMgr, "/org/opensuse/RebootMgr", rebootMgr, methods)
}

func st(s uint32) func() (uint32, *dbus.Error) {
	return func() (uint32, *dbus.Error) { return s, nil }
}

func window(start, length string) func() (string, string, *dbus.Error) {
	return func() (string, string, *dbus.Error) { return start, length, nil }
}

// forever returns a method that answers when the test ends.
func forever(t *testing.T) func() (uint32, *dbus.Error) {
	t.Helper()
	return func() (uint32, *dbus.Error) { <-t.Context().Done(); return 0, nil }
}

func TestRebootmgrOverDBus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		methods map[string]any
		want    string // empty: no hold
	}{
		"none requested":    {map[string]any{"Status": st(0)}, ""},
		"requested":         {map[string]any{"Status": st(1)}, "rebootmgr: a reboot was requested"},
		"waiting for etcd":  {map[string]any{"Status": st(3)}, "rebootmgr: a reboot was requested"},
		"a later version's": {map[string]any{"Status": st(9)}, "rebootmgr: a reboot was requested"},
		"waiting for its window": {
			map[string]any{"Status": st(2), "GetMaintenanceWindow": window("Thu 03:30", "1h30m")},
			"rebootmgr: a reboot was requested and waits for its maintenance window (Thu 03:30, 1h30m long)",
		},
		"a window that nobody names": {
			map[string]any{"Status": st(2)},
			"rebootmgr: a reboot was requested and waits for its maintenance window",
		},
		"a window with control characters": {
			map[string]any{"Status": st(2), "GetMaintenanceWindow": window("03:30\n\x1b[31m", strings.Repeat("h", 301))},
			"rebootmgr: a reboot was requested and waits for its maintenance window (03:30  [31m, " + strings.Repeat("h", 297) + "… long)",
		},
		"an error": {
			map[string]any{"Status": func() (uint32, *dbus.Error) {
				return 0, dbus.NewError("org.opensuse.Oops", []any{"no\nway"})
			}},
			"org.opensuse.RebootMgr: org.opensuse.Oops: no way",
		},
		"another type": {
			map[string]any{"Status": func() (string, *dbus.Error) { return "none", nil }},
			"org.opensuse.RebootMgr: dbus.Store: *",
		},
		"no such method": {map[string]any{"State": st(0)}, "org.opensuse.RebootMgr: org.freedesktop.DBus.Error.UnknownMethod*"},
		"too much": {
			map[string]any{"Status": func() (string, *dbus.Error) { return strings.Repeat("x", 300<<10), nil }},
			"org.opensuse.RebootMgr: more than 256 KiB",
		},
		"silence": {map[string]any{"Status": forever(t)}, "org.opensuse.RebootMgr: no answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bustest.Start(t, "")
			serveRebootMgr(t, b, c.methods)
			holds := reboot.Node{Root: t.TempDir(), Bus: b.Address}.Holds(t.Context())
			isHeld(t, holds, status.HoldReboot, c.want)
		})
	}
}

// isHeld asserts that there is one hold with that name and reason, or with the text before a star; if want is empty,
// that there is none.
func isHeld(t *testing.T, holds []status.Hold, name, want string) {
	t.Helper()
	if want == "" {
		assert.Empty(t, holds)
		return
	}
	require.Len(t, holds, 1)
	assert.Equal(t, name, holds[0].Name)
	if start, open := strings.CutSuffix(want, "*"); open {
		assert.Regexp(t, "^"+regexp.QuoteMeta(start), holds[0].Reason)
	} else {
		assert.Equal(t, want, holds[0].Reason)
	}
	assert.NotRegexp(t, `[\x00-\x1f]`, holds[0].Reason)
	assert.Less(t, len(holds[0].Reason), 500)
}

func TestRebootmgrThatDisappears(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t, "")
	var conn *dbus.Conn
	ready := make(chan struct{})
	conn = serveRebootMgr(t, b, map[string]any{"Status": func() (uint32, *dbus.Error) {
		<-ready
		_ = conn.Close()
		return 0, nil
	}})
	close(ready)
	holds := reboot.Node{Bus: b.Address, Root: t.TempDir()}.Holds(t.Context())
	isHeld(t, holds, status.HoldReboot, "org.opensuse.RebootMgr: org.freedesktop.DBus.Error.NoReply*")
}

// A service that is not running is asked only if its answer outlives it: tukit's is on the disk.
func TestServicesStartedByACall(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t, "")
	dir := t.TempDir()
	for _, name := range []string{rebootMgr, tukit} {
		b.Startable(t, name, "/bin/sh -c 'touch "+filepath.Join(dir, name)+"; exit 1'")
	}
	holds := reboot.Node{Bus: b.Address, Root: t.TempDir()}.Holds(t.Context())
	isHeld(t, holds, status.HoldSnapshot, "org.opensuse.tukit: org.freedesktop.DBus.Error.Spawn.*")
	assert.FileExists(t, filepath.Join(dir, tukit))
	assert.NoFileExists(t, filepath.Join(dir, rebootMgr))
}

func TestSnapshots(t *testing.T) {
	t.Parallel()
	type snapshots = []map[string]string
	snapshot := func(number, isDefault, active string) map[string]string {
		return map[string]string{"number": number, "default": isDefault, "active": active}
	}
	old := snapshot("2264", "no", "no")
	const unclear = "org.opensuse.tukit: names no default or no active snapshot"
	for name, c := range map[string]struct {
		list snapshots
		want string
	}{
		"the one that runs is the next": {snapshots{old, snapshot("2305", "yes", "yes")}, ""},
		"another is the next": {
			snapshots{old, snapshot("2305", "no", "yes"), snapshot("2310", "yes", "no")},
			"snapshot 2310 waits for a reboot, 2305 is running",
		},
		"an older is the next": {
			snapshots{snapshot("2264", "yes", "no"), snapshot("2305", "no", "yes")},
			"snapshot 2264 waits for a reboot, 2305 is running",
		},
		"none at all":  {snapshots{}, ""},
		"no default":   {snapshots{old, snapshot("2305", "no", "yes")}, unclear},
		"no active":    {snapshots{old, snapshot("2305", "yes", "no")}, unclear},
		"no such keys": {snapshots{{"id": "1"}}, unclear},
		"odd numbers":  {snapshots{snapshot("1\n", "yes", ""), snapshot("\x1b", "", "yes")}, "snapshot 1  waits for a reboot,   is running"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bustest.Start(t, "")
			b.Serve(t, tukit, "/org/opensuse/tukit/Snapshot", tukit+".Snapshot", map[string]any{
				"List": func(columns string) (snapshots, *dbus.Error) {
					if columns != "number,default,active" {
						return nil, dbus.NewError("org.opensuse.tukit.Error", []any{columns})
					}
					return c.list, nil
				},
			})
			isHeld(t, reboot.Node{Bus: b.Address, Root: t.TempDir()}.Holds(t.Context()), status.HoldSnapshot, c.want)
		})
	}
}

func TestTukitThatFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		list any
		want string
	}{
		"an error": {
			func(string) ([]map[string]string, *dbus.Error) {
				return nil, dbus.NewError("org.opensuse.tukit.Error", []any{"No snapshots."})
			}, "org.opensuse.tukit: org.opensuse.tukit.Error: No snapshots.",
		},
		"another type": {
			func(string) (string, *dbus.Error) { return "1", nil }, "org.opensuse.tukit: dbus.Store: *",
		},
		"silence": {
			func(string) (string, *dbus.Error) { <-t.Context().Done(); return "", nil },
			"org.opensuse.tukit: no answer in time",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bustest.Start(t, "")
			b.Serve(t, tukit, "/org/opensuse/tukit/Snapshot", tukit+".Snapshot", map[string]any{"List": c.list})
			isHeld(t, reboot.Node{Bus: b.Address, Root: t.TempDir()}.Holds(t.Context()), status.HoldSnapshot, c.want)
		})
	}
}

func TestNodesWithoutSources(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	assert.Empty(t, reboot.Node{Root: empty}.Holds(t.Context()), "no bus")
	assert.Empty(t, reboot.Node{Root: empty, Bus: bus.At(filepath.Join(empty, "none"))}.Holds(t.Context()), "no socket")
	assert.Empty(t, reboot.Node{Root: empty, Bus: bustest.Start(t, "").Address}.Holds(t.Context()), "an empty bus")

	// Sockets without a listener, and files in place of directories.
	left := t.TempDir()
	for _, name := range []string{"bus", "run/rebootmgr/rebootmgrd.socket"} {
		path := filepath.Join(left, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		require.NoError(t, err)
		l.SetUnlinkOnClose(false)
		require.NoError(t, l.Close())
	}
	assert.Empty(t, reboot.Node{Root: left, Bus: bus.At(filepath.Join(left, "bus"))}.Holds(t.Context()))
	file := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(file, "run"), nil, 0o644))
	assert.Empty(t, reboot.Node{Root: file, Bus: bus.At(filepath.Join(file, "run/bus"))}.Holds(t.Context()))
}

// An interrupted observation ends at once, and does not allow an apply.
func TestInterruptedObservation(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t, "")
	asked := make(chan struct{})
	serveRebootMgr(t, b, map[string]any{"Status": func() (uint32, *dbus.Error) {
		close(asked)
		<-t.Context().Done()
		return 0, nil
	}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	holds := reboot.Node{Bus: b.Address, Root: t.TempDir()}.Holds(ctx)
	require.NotEmpty(t, holds)
	assert.Equal(t, status.HoldReboot, holds[0].Name)
	assert.Contains(t, holds[0].Reason, context.Canceled.Error(), "it did not wait for the answer")
}

// All holds are returned, in the same order each time.
func TestAllSourcesTogether(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t, "")
	serveRebootMgr(t, b, map[string]any{"Status": st(1)})
	b.Serve(t, tukit, "/org/opensuse/tukit/Snapshot", tukit+".Snapshot", map[string]any{
		"List": func(string) ([]map[string]string, *dbus.Error) {
			return []map[string]string{{"number": "1", "active": "yes"}, {"number": "2", "default": "yes"}}, nil
		},
	})
	root := t.TempDir()
	registrytest.Put(t, root, "run/systemd/shutdown/scheduled", "USEC=1763695800000000\nMODE=kexec\n")
	registrytest.Put(t, root, "run/reboot-required", "")
	serveVarlink(t, root, answer(`{"parameters":{"RebootStatus":1,"RequestedMethod":2}}`))
	assert.Equal(t, []status.Hold{
		{
			Name: "reboot", Reason: "kexec is scheduled at 2025-11-21T03:30:00Z",
			Until: time.Date(2025, time.November, 21, 3, 30, 0, 0, time.UTC),
		},
		{Name: "reboot", Reason: "/run/reboot-required requests a reboot"},
		{Name: "reboot", Reason: "rebootmgr: a soft reboot was requested and comes as soon as rebootmgr allows it"},
		{Name: "reboot", Reason: "rebootmgr: a reboot was requested"},
		{Name: "snapshot", Reason: "snapshot 2 waits for a reboot, 1 is running"},
	}, reboot.Node{Root: root, Bus: b.Address}.Holds(t.Context()))
}
