// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/face/bus/bustest"
	"github.com/kubic-project/image-update-agent/internal/face/hook"
	"github.com/kubic-project/image-update-agent/internal/node/config"
	"github.com/kubic-project/image-update-agent/systemd"
)

// hooked is a node with both hooks, whose programs are there.
func hooked(t *testing.T) Node {
	t.Helper()
	n := newNode(t)
	n.SaltCall = hook.Program{Root: n.Platform.Root, Path: filepath.Join(n.Platform.Root, "usr/bin/salt-call")}
	n.HookProgram = hook.Program{Root: n.Platform.Root, Path: filepath.Join(n.Platform.Root, "opt/tell")}
	n.Hooks = config.Hooks{SaltRefresh: true, Exec: n.HookProgram.Path}
	for _, program := range []string{n.SaltCall.Path, n.HookProgram.Path} {
		require.NoError(t, os.MkdirAll(filepath.Dir(program), 0o755))
		require.NoError(t, os.WriteFile(program, nil, 0o755))
	}
	return n
}

// serveHookUnits is a service manager with the units of hooks in these states.
func serveHookUnits(t *testing.T, n Node, path, service string) {
	t.Helper()
	b := bustest.Start(t, filepath.Join(n.Platform.Root, "run/dbus/system_bus_socket"))
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

// hookStates are the units' states, and what is said.
var hookStates = map[string]struct {
	path, service string
	verdict       string
	texts         []string
}{
	"all is well":         {"active", "inactive", OK, []string{"hook.path is active"}},
	"one runs":            {"active", "activating", OK, nil},
	"the last has failed": {"active", "failed", Warn, []string{"hooks failed", "journalctl -u " + systemd.HookService}},
	"not enabled":         {"inactive", "inactive", Warn, []string{"is inactive, so no hook runs", "systemctl enable --now " + systemd.HookPath}},
	"not installed":       {"not-found", "not-found", Warn, []string{"is not-found, so no hook runs"}},
	"given up":            {"failed", "failed", Warn, []string{"has failed", "systemctl reset-failed"}},
	"no systemd":          {"", "", Warn, []string{systemd.HookPath + ": ", "systemctl status"}},
}

func TestCheckHooks(t *testing.T) {
	t.Parallel()
	for name, c := range hookStates {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := hooked(t)
			if c.path != "" {
				serveHookUnits(t, n, c.path, c.service)
			}
			all := n.checkHooks(t.Context())
			require.Len(t, all, 1)
			found(t, all[0], c.verdict, c.texts...)
		})
	}
	t.Run("none configured", func(t *testing.T) {
		t.Parallel()
		all := newNode(t).checkHooks(t.Context())
		require.Len(t, all, 1)
		found(t, all[0], Skipped, "none configured")
	})
	t.Run("neither can be run", func(t *testing.T) {
		t.Parallel()
		n := hooked(t)
		n.RuntimeDir = filepath.Join(n.Platform.Root, "run/elsewhere")
		require.NoError(t, os.Remove(n.SaltCall.Path))
		require.NoError(t, os.Chmod(n.HookProgram.Path, 0o644))
		serveHookUnits(t, n, "active", "inactive")
		all := n.checkHooks(t.Context())
		require.Len(t, all, 3)
		found(t, all[0], Warn, "usr/bin/salt-call: no such file", "hooks.saltRefresh")
		found(t, all[1], Warn, "opt/tell: not executable", "make root the owner")
		found(t, all[2], Warn, n.RuntimeDir, "PathExists=")
	})
	t.Run("no salt-call", func(t *testing.T) {
		t.Parallel()
		n := hooked(t)
		require.NoError(t, os.Remove(n.SaltCall.Path))
		serveHookUnits(t, n, "active", "inactive")
		n.Hooks = config.Hooks{SaltEvent: true}
		require.Equal(t, "install salt-minion on the node, or remove hooks.saltEvent", n.checkHooks(t.Context())[0].Remedy)
		n.Hooks.SaltRefresh = true
		found(t, n.checkHooks(t.Context())[0], Warn, "remove hooks.saltRefresh and hooks.saltEvent")
	})
	t.Run("a webhook's file is everybody's", func(t *testing.T) {
		t.Parallel()
		n := hooked(t)
		file := filepath.Join(t.TempDir(), "url")
		require.NoError(t, os.WriteFile(file, []byte("https://hooks.example.com/s3cr3t\n"), 0o644))
		n.Webhooks = []hook.Webhook{{Name: "chat", URLFile: file, CheckURL: config.CheckWebhookURL}}
		serveHookUnits(t, n, "active", "inactive")
		all := n.checkHooks(t.Context())
		require.Len(t, all, 1)
		found(t, all[0], Warn, "webhook chat: urlFile "+file+": mode 0644: others may read it", "mode 0600")
		require.NoError(t, os.Chmod(file, 0o600))
		found(t, n.checkHooks(t.Context())[0], OK)
	})
	t.Run("and one of them can", func(t *testing.T) {
		t.Parallel()
		n := hooked(t)
		require.NoError(t, os.Chmod(filepath.Dir(n.HookProgram.Path), 0o777))
		serveHookUnits(t, n, "active", "inactive")
		all := n.checkHooks(t.Context())
		require.Len(t, all, 1)
		found(t, all[0], Warn, "unsafe: others may write to "+filepath.Dir(n.HookProgram.Path))
	})
}
