// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/face/bus"
	"github.com/kubic-project/image-update-agent/internal/face/bus/bustest"
	"github.com/kubic-project/image-update-agent/systemd"
)

// serveUnit serves systemd on a bus with one of the agent's units.
func serveUnit(t *testing.T, b bustest.Bus, path string, properties map[string]any) {
	t.Helper()
	b.Serve(t, "org.freedesktop.systemd1", "/org/freedesktop/systemd1/unit/"+path, "org.freedesktop.DBus.Properties",
		map[string]any{"Get": func(face, property string) (dbus.Variant, *dbus.Error) {
			value, there := properties[face[len("org.freedesktop.systemd1."):]+"."+property]
			if !there {
				return dbus.Variant{}, dbus.NewError("org.freedesktop.DBus.Error.UnknownProperty", []any{"Unknown property."})
			}
			return dbus.MakeVariant(value), nil
		}})
}

// The types are those of org.freedesktop.systemd1(5): b, as, s, t, u.
func unitProperties() map[string]any {
	return map[string]any{
		"Unit.LoadState": "loaded", "Unit.UnitFileState": "enabled", "Unit.ActiveState": "active",
		"Unit.NeedDaemonReload": true, "Unit.DropInPaths": []string{"/etc/a.conf", "/etc/b\n.conf"},
		"Service.Result": "success", "Service.NRestarts": uint32(3), "Service.WatchdogUSec": uint64(180e6), "Service.MainPID": uint32(4711),
	}
}

// readService reads the daemon's unit from a manager with these properties.
func readService(t *testing.T, edit func(properties map[string]any)) (systemd.State, error) {
	t.Helper()
	b := bustest.Start(t, "")
	properties := unitProperties()
	edit(properties)
	serveUnit(t, b, "image_2dupdate_2dagent_2eservice", properties)
	return systemd.ReadState(t.Context(), b.Address, systemd.ServiceUnit)
}

func TestStateOfAService(t *testing.T) {
	t.Parallel()
	s, err := readService(t, func(map[string]any) {})
	require.NoError(t, err)
	assert.Equal(t, systemd.State{
		Load: "loaded", File: "enabled", Active: "active", Changed: true, DropIns: []string{"/etc/a.conf", "/etc/b .conf"},
		Result: "success", Restarts: 3, Watchdog: 3 * time.Minute, PID: 4711,
	}, s)
	s, err = readService(t, func(p map[string]any) { p["Service.WatchdogUSec"] = uint64(math.MaxUint64) })
	require.NoError(t, err)
	assert.Zero(t, s.Watchdog, "infinity is none")
	_, err = readService(t, func(p map[string]any) { delete(p, "Service.NRestarts") })
	require.ErrorContains(t, err, systemd.ServiceUnit)
}

// A socket has no service properties.
func TestStateOfASocket(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t, "")
	serveUnit(t, b, "image_2dupdate_2dagent_2esocket", map[string]any{
		"Unit.LoadState": "loaded", "Unit.UnitFileState": "static", "Unit.ActiveState": "inactive",
		"Unit.NeedDaemonReload": false, "Unit.DropInPaths": []string{},
	})
	s, err := systemd.ReadState(t.Context(), b.Address, systemd.SocketUnit)
	require.NoError(t, err)
	assert.Equal(t, systemd.State{Load: "loaded", File: "static", Active: "inactive", DropIns: []string{}}, s)
}

func TestNoManager(t *testing.T) {
	t.Parallel()
	_, err := systemd.ReadState(t.Context(), bus.At(filepath.Join(t.TempDir(), "none")), systemd.ServiceUnit)
	require.ErrorIs(t, err, bus.ErrNone)
	_, err = systemd.ReadState(t.Context(), bustest.Start(t, "").Address, systemd.ServiceUnit)
	require.ErrorIs(t, err, bus.ErrAbsent)
}
