// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/bus/bustest"
)

// BenchmarkBus is what a read and a call cost on a real bus, without the work: the
// caller's part included.
func BenchmarkBus(b *testing.B) {
	system := bustest.System(b, shippedPolicy, polkitPolicy)
	system.Serve(b, "org.freedesktop.PolicyKit1", "/org/freedesktop/PolicyKit1/Authority",
		"org.freedesktop.PolicyKit1.Authority", map[string]any{"CheckAuthorization": check(
			func(subject, string, map[string]string, uint32, string) (result, *dbus.Error) {
				return result{Authorized: true}, nil
			})})
	d := newWatched(&daemon{status: someStatus(), check: func(func(status.Progress)) (status.Status, error) { return someStatus(), nil }})
	object := NewBus(BusOptions{Address: system.Address, Daemon: d, Log: slog.New(slog.DiscardHandler)})
	object.firstWait = time.Millisecond
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); object.Run(ctx) }()
	b.Cleanup(func() { stop(); <-ended })
	root, user := system.Connect(b), system.ConnectAs(b, nobodysID)
	for there := false; !there; {
		if err := root.BusObject().CallWithContext(b.Context(), "org.freedesktop.DBus.NameHasOwner", 0, BusName).Store(&there); err != nil {
			b.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		conn   *dbus.Conn
		method string
		args   []any
	}{
		"property":       {user, propertiesFace + ".Get", []any{BusName, "State"}},
		"all properties": {user, propertiesFace + ".GetAll", []any{BusName}},
		"root acts":      {root, BusName + ".Check", nil},
		"a user acts":    {user, BusName + ".Check", nil},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.conn.Object(BusName, busPath).CallWithContext(b.Context(), c.method, 0, c.args...).Err; err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
