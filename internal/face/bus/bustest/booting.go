// SPDX-License-Identifier: Apache-2.0

package bustest

import (
	"testing"

	"github.com/godbus/dbus/v5"
)

// Booting is the service manager's word on the boot and on kubelet.service
// (org.freedesktop.systemd1(5)).
type Booting struct {
	System string // SystemState
	Load   string // LoadState of kubelet's unit
	Left   uint64 // InactiveExitTimestampMonotonic of it: 0 before its first start
}

// Serve has the manager on the bus.
func (is Booting) Serve(tb testing.TB, b Bus) {
	tb.Helper()
	properties := map[string]any{
		"org.freedesktop.systemd1.Manager.SystemState":                 is.System,
		"org.freedesktop.systemd1.Unit.LoadState":                      is.Load,
		"org.freedesktop.systemd1.Unit.InactiveExitTimestampMonotonic": is.Left,
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
	for _, path := range []dbus.ObjectPath{manager, manager + "/unit/kubelet_2eservice"} {
		if err := conn.ExportMethodTable(get, path, "org.freedesktop.DBus.Properties"); err != nil {
			tb.Fatal(err)
		}
	}
	own(tb, conn, "org.freedesktop.systemd1")
}
