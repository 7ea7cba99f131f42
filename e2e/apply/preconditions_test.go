// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/face/bus/bustest"
)

// neighbours are the services on the node's bus that can hold an apply.
type neighbours struct {
	kubelet  atomic.Int64  // since when kubelet.service is active, in microseconds of the monotonic clock
	reboot   atomic.Uint32 // rebootmgr 2.x: 0 none, 1 requested, 2 waits for the window
	snapshot atomic.Value  // the number of the default snapshot; 2305 is active
}

func startNeighbours(t *testing.T, socket string) *neighbours {
	t.Helper()
	n := new(neighbours)
	n.snapshot.Store("2305")
	b := bustest.Start(t, socket)
	b.Serve(t, "org.freedesktop.systemd1", "/org/freedesktop/systemd1/unit/kubelet_2eservice",
		"org.freedesktop.DBus.Properties", map[string]any{"Get": n.property})
	b.Serve(t, "org.opensuse.RebootMgr", "/org/opensuse/RebootMgr", "org.opensuse.RebootMgr", map[string]any{
		"Status": func() (uint32, *dbus.Error) { return n.reboot.Load(), nil },
	})
	b.Serve(t, "org.opensuse.tukit", "/org/opensuse/tukit/Snapshot", "org.opensuse.tukit.Snapshot", map[string]any{
		"List": func(string) ([]map[string]string, *dbus.Error) {
			next := n.snapshot.Load().(string)
			if next == "2305" {
				return []map[string]string{{"number": next, "default": "yes", "active": "yes"}}, nil
			}
			return []map[string]string{
				{"number": "2305", "default": "no", "active": "yes"}, {"number": next, "default": "yes", "active": "no"},
			}, nil
		},
	})
	return n
}

func (n *neighbours) property(_, name string) (dbus.Variant, *dbus.Error) {
	value, ok := map[string]any{
		"LoadState": "loaded", "ActiveState": "active", "ActiveEnterTimestampMonotonic": uint64(n.kubelet.Load()),
	}[name]
	if !ok {
		return dbus.Variant{}, dbus.NewError("org.freedesktop.DBus.Error.UnknownProperty", nil)
	}
	return dbus.MakeVariant(value), nil
}

// startedAgo sets how long kubelet has been up.
func (n *neighbours) startedAgo(t *testing.T, ago time.Duration) {
	t.Helper()
	var now unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	n.kubelet.Store(max(0, now.Nano()/1000-ago.Microseconds()))
}

// Imminent changes of the node hold an apply: name and reason are reported, nothing is stopped, and the apply works
// when they are over.
func TestPreconditionsOfAnApply(t *testing.T) {
	t.Parallel()
	n, daemon, port := story.Running(t, "")
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.2")
	s := story.Check(t, n)
	require.Equal(t, status.StateStaged, s.State, s.Reason)
	id, before := story.Container(t, n), story.Look(t, n, story.GrainFile)
	others := startNeighbours(t, n.Path("run/dbus/system_bus_socket"))

	others.startedAgo(t, -time.Hour) // it stays young, however slow the machine is
	story.Held(t, n, "kubelet: kubelet.service started ")
	others.startedAgo(t, 24*time.Hour)

	others.snapshot.Store("2310")
	story.Held(t, n, "snapshot: snapshot 2310 waits for a reboot, 2305 is running")
	s = story.Check(t, n)
	assert.Equal(t, status.StateHeld, s.State)
	assert.Equal(t, status.Explained([]status.Hold{{Name: "snapshot", Reason: "snapshot 2310 waits for a reboot, 2305 is running"}}),
		story.PodOf(t, s, "velum.yaml").Holds)
	assert.Contains(t, n.Agent("status").Stdout, "snapshot 2310 waits for a reboot")
	others.snapshot.Store("2305")

	others.reboot.Store(2)
	story.Held(t, n, "reboot: rebootmgr: a reboot was requested and waits for its maintenance window")
	others.reboot.Store(0)

	n.WriteFile("run/systemd/shutdown/scheduled", "USEC=4102444800000000\nMODE=reboot\n")
	story.Held(t, n, "reboot: reboot is scheduled at ")
	require.NoError(t, os.Remove(n.Path("run/systemd/shutdown/scheduled")))

	n.WriteFile("run/reboot-required", "")
	story.Held(t, n, "reboot: /run/reboot-required requests a reboot")
	require.NoError(t, os.Remove(n.Path("run/reboot-required")))

	before.Unchanged(t, n, story.GrainFile)
	assert.Equal(t, id, story.Container(t, n), "nothing was stopped")
	story.Apply(t, n, 0, "velum")
	n.WaitAnswer(port, "4.0.0-rev1-build1.2")
	s = story.St(t, n)
	story.IsCurrent(t, s)
	assert.Equal(t, 0, daemon.Stop().Code)
}
