// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/bus/bustest"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
)

// Both packages are asked, below the root, on the bus that D-Bus's own variable
// names, or else on the root's.
func TestPreconditionsOfTheNode(t *testing.T) {
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "")
	s := settings{root: t.TempDir(), platform: platform.Detect("")}
	assert.Empty(t, s.preconditions().Holds(t.Context()), "nothing there")
	require.NoError(t, os.MkdirAll(filepath.Join(s.root, "run"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(s.root, "run/reboot-required"), nil, 0o644))
	reboots := status.Hold{Name: "reboot", Reason: "/run/reboot-required requests a reboot"}
	stopped := status.Hold{Name: "kubelet", Reason: "kubelet.service is not active: inactive"}
	assert.Equal(t, []status.Hold{reboots}, s.preconditions().Holds(t.Context()))

	serveStopped(t, bustest.Start(t, filepath.Join(s.root, "run/dbus/system_bus_socket")))
	assert.Equal(t, []status.Hold{reboots, stopped}, s.preconditions().Holds(t.Context()))

	other := bustest.Start(t, "")
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", other.Address)
	assert.Equal(t, []status.Hold{reboots}, s.preconditions().Holds(t.Context()), "the other bus is empty")
	serveStopped(t, other)
	assert.Equal(t, []status.Hold{reboots, stopped}, s.preconditions().Holds(t.Context()))
	assert.Equal(t, "unix:path=/run/dbus/system_bus_socket", func() string {
		t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "")
		return settings{root: "/"}.systemBus()
	}())
}

// serveStopped is a service manager whose kubelet.service is not active.
func serveStopped(t *testing.T, b bustest.Bus) {
	t.Helper()
	b.Serve(t, "org.freedesktop.systemd1", "/org/freedesktop/systemd1/unit/kubelet_2eservice",
		"org.freedesktop.DBus.Properties", map[string]any{"Get": func(_, name string) (dbus.Variant, *dbus.Error) {
			if name == "ActiveEnterTimestampMonotonic" {
				return dbus.MakeVariant(uint64(0)), nil
			}
			return dbus.MakeVariant(map[string]string{"LoadState": "loaded", "ActiveState": "inactive"}[name]), nil
		}})
}
