// SPDX-License-Identifier: Apache-2.0

package reboot_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
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
)

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
	write(t, root, "run/systemd/shutdown/scheduled", "USEC=1763695800000000\nMODE=kexec\n")
	write(t, root, "run/reboot-required", "")
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
