// SPDX-License-Identifier: Apache-2.0

package reboot_test

import (
	"testing"

	"github.com/godbus/dbus/v5"

	"github.com/kubic-project/image-update-agent/internal/bus/bustest"
	"github.com/kubic-project/image-update-agent/internal/reboot"
)

// An observation of a node without any of the sources, like most nodes.
func BenchmarkNothingThere(b *testing.B) {
	node := reboot.Node{Root: b.TempDir(), Bus: "unix:path=/nothing/here"}
	for b.Loop() {
		node.Holds(b.Context())
	}
}

// An observation of a node with rebootmgr 2.x and tukit.
func BenchmarkOverDBus(b *testing.B) {
	server := bustest.Start(b, "")
	server.Serve(b, rebootMgr, "/org/opensuse/RebootMgr", rebootMgr, map[string]any{"Status": st(0)})
	server.Serve(b, tukit, "/org/opensuse/tukit/Snapshot", tukit+".Snapshot", map[string]any{
		"List": func(string) ([]map[string]string, *dbus.Error) {
			return []map[string]string{{"number": "1", "default": "yes", "active": "yes"}}, nil
		},
	})
	node := reboot.Node{Root: b.TempDir(), Bus: server.Address}
	for b.Loop() {
		node.Holds(b.Context())
	}
}
