// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/bus/bustest"
	"github.com/kubic-project/image-update-agent/systemd"
)

// hooksOf is what doctor says of a host's hooks, whose units are in these states.
func hooksOf(t *testing.T, h hooked, path, service string) []finding {
	t.Helper()
	if path != "" {
		b := bustest.Start(t, h.path("run/dbus/system_bus_socket"))
		var manager *dbus.Conn
		for unit, state := range map[string]string{"path": path, "service": service} {
			object := dbus.ObjectPath("/org/freedesktop/systemd1/unit/image_2dupdate_2dagent_2dhook_2e" + unit)
			methods := map[string]any{"Get": func(_, property string) (dbus.Variant, *dbus.Error) {
				values := map[string]any{"LoadState": "loaded", "ActiveState": state, "ActiveEnterTimestampMonotonic": uint64(1)}
				if state == "not-found" {
					values["LoadState"], values["ActiveState"] = state, "inactive"
				}
				return dbus.MakeVariant(values[property]), nil
			}}
			if manager == nil {
				manager = b.Serve(t, "org.freedesktop.systemd1", string(object), "org.freedesktop.DBus.Properties", methods)
			} else {
				require.NoError(t, manager.ExportMethodTable(methods, object, "org.freedesktop.DBus.Properties"))
			}
		}
	}
	a := &app{root: h.root}
	s, err := a.settings()
	require.NoError(t, err)
	return s.checkHooks(t.Context(), a)
}

// hookStates are the units' states, and what is said.
var hookStates = map[string]struct {
	path, service string
	verdict       string
	texts         []string
}{
	"all is well":         {"active", "inactive", verdictOK, []string{"hook.path is active"}},
	"one runs":            {"active", "activating", verdictOK, nil},
	"the last has failed": {"active", "failed", verdictWarn, []string{"did not end well", "journalctl -u " + systemd.HookService}},
	"not enabled":         {"inactive", "inactive", verdictWarn, []string{"is inactive: nothing is run", "systemctl enable --now " + systemd.HookPath}},
	"not installed":       {"not-found", "not-found", verdictWarn, []string{"is not-found: nothing is run"}},
	"given up":            {"failed", "failed", verdictWarn, []string{"has given up", "systemctl reset-failed"}},
	"no systemd":          {"", "", verdictWarn, []string{systemd.HookPath + ": ", "systemctl status"}},
}

func TestCheckHooks(t *testing.T) {
	t.Parallel()
	for name, c := range hookStates {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := hooksOf(t, newHooked(t, both), c.path, c.service)
			require.Len(t, all, 1)
			found(t, all[0], c.verdict, c.texts...)
		})
	}
	t.Run("none is configured", func(t *testing.T) {
		t.Parallel()
		all := hooksOf(t, newHooked(t, ""), "", "")
		require.Len(t, all, 1)
		found(t, all[0], verdictOK, "none is configured")
	})
	t.Run("neither can be run", func(t *testing.T) {
		t.Parallel()
		h := newHooked(t, both+"runtimeDir: /run/elsewhere\n")
		require.NoError(t, os.Remove(h.path("usr/bin/salt-call")))
		require.NoError(t, os.Chmod(h.path("opt/tell"), 0o644))
		all := hooksOf(t, h, "active", "inactive")
		require.Len(t, all, 3)
		found(t, all[0], verdictWarn, "usr/bin/salt-call: no such file", "hooks.saltRefresh")
		found(t, all[1], verdictWarn, "opt/tell: not executable", "root's")
		found(t, all[2], verdictWarn, filepath.Join(h.root, "run/elsewhere"), "PathExists=")
	})
	t.Run("and one of them can", func(t *testing.T) {
		t.Parallel()
		h := newHooked(t, both)
		require.NoError(t, os.Chmod(h.path("opt"), 0o777))
		all := hooksOf(t, h, "active", "inactive")
		require.Len(t, all, 1)
		found(t, all[0], verdictWarn, "unsafe: others may write to "+h.path("opt"))
	})
	assert.NotEmpty(t, hookStates)
}
