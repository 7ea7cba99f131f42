// SPDX-License-Identifier: Apache-2.0

package bustest

import (
	"testing"

	"github.com/godbus/dbus/v5"
)

// Booting is what systemd says of the boot and of kubelet.service, which starts kubelet with its usual directory
// (org.freedesktop.systemd1(5)).
type Booting struct {
	System string // SystemState
	Load   string // LoadState of kubelet's unit
	Left   uint64 // InactiveExitTimestampMonotonic of it: 0 before its first start
	// Unit is another unit that starts kubelet, with its object's name on the bus, and Command is what it starts.
	Unit    string
	Command []string
}

// execStart is a command of a unit: a(sasasttttuii).
type execStart struct {
	Path                     string
	Argv, Flags              []string
	Begin, Began, End, Ended uint64
	PID                      uint32
	Code, Status             int32
}

// Serve puts systemd on the bus.
func (is Booting) Serve(tb testing.TB, b Bus) {
	tb.Helper()
	if is.Unit == "" {
		is.Unit = "kubelet_2eservice"
		is.Command = []string{"/usr/bin/kubelet", "--pod-manifest-path=/etc/kubernetes/manifests"}
	}
	properties := map[string]any{
		"org.freedesktop.systemd1.Manager.SystemState":                 is.System,
		"org.freedesktop.systemd1.Unit.LoadState":                      is.Load,
		"org.freedesktop.systemd1.Unit.InactiveExitTimestampMonotonic": is.Left,
		"org.freedesktop.systemd1.Unit.ActiveState":                    "active",
		"org.freedesktop.systemd1.Unit.ActiveEnterTimestampMonotonic":  uint64(0),
		"org.freedesktop.systemd1.Service.MainPID":                     uint32(0),
		"org.freedesktop.systemd1.Service.ExecStartEx": []execStart{
			{Path: is.Command[0], Argv: is.Command},
		},
		"org.freedesktop.systemd1.Service.Environment": []string{},
		"org.freedesktop.systemd1.Service.EnvironmentFiles": []struct {
			Path    string
			MayMiss bool
		}{},
		"org.freedesktop.systemd1.Service.UnsetEnvironment": []string{},
	}
	get := map[string]any{"Get": func(face, property string) (dbus.Variant, *dbus.Error) {
		value, ok := properties[face+"."+property]
		if !ok {
			return dbus.Variant{}, dbus.NewError("org.freedesktop.DBus.Error.UnknownProperty", []any{"Unknown property."})
		}
		return dbus.MakeVariant(value), nil
	}}
	conn := b.Connect(tb)
	const manager = "/org/freedesktop/systemd1"
	for _, path := range []dbus.ObjectPath{manager, dbus.ObjectPath(manager + "/unit/" + is.Unit)} {
		if err := conn.ExportMethodTable(get, path, "org.freedesktop.DBus.Properties"); err != nil {
			tb.Fatal(err)
		}
	}
	own(tb, conn, "org.freedesktop.systemd1")
}
