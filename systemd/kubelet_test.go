// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"context"
	"net"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
	"github.com/kubic-project/image-update-agent/internal/face/bus/bustest"
	"github.com/kubic-project/image-update-agent/systemd"
)

// unit is the manager's data about kubelet.service.
type unit struct {
	load, active string
	ago          time.Duration // since it became active
}

// serveManager is systemd on a bus, with one unit (org.freedesktop.systemd1(5)).
func serveManager(t *testing.T, b bustest.Bus, u func() unit) {
	t.Helper()
	b.Serve(t, "org.freedesktop.systemd1", "/org/freedesktop/systemd1/unit/kubelet_2eservice", "org.freedesktop.DBus.Properties",
		map[string]any{"Get": func(face, property string) (dbus.Variant, *dbus.Error) {
			if face == "org.freedesktop.systemd1.Unit" {
				switch property {
				case "LoadState":
					return dbus.MakeVariant(u().load), nil
				case "ActiveState":
					return dbus.MakeVariant(u().active), nil
				case "ActiveEnterTimestampMonotonic":
					return dbus.MakeVariant(monotonic(t) - uint64(u().ago.Microseconds())), nil
				}
			}
			return dbus.Variant{}, dbus.NewError("org.freedesktop.DBus.Error.UnknownProperty", []any{"Unknown property."})
		}})
}

// monotonic returns the monotonic clock in microseconds.
func monotonic(t *testing.T) uint64 {
	t.Helper()
	var now unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	return uint64(now.Nano() / 1000)
}

func TestKubelet(t *testing.T) {
	t.Parallel()
	up := monotonic(t) / 2 // the machine may have just booted
	long := min(time.Hour, time.Duration(up)*time.Microsecond)
	require.Greater(t, long, time.Minute)
	for name, c := range map[string]struct {
		unit unit
		want string // a pattern; empty: no hold
	}{
		"up for long":         {unit{"loaded", "active", long}, ""},
		"just over a minute":  {unit{"loaded", "active", time.Minute + time.Second}, ""},
		"reloads":             {unit{"loaded", "reloading", long}, ""},
		"just started":        {unit{"loaded", "active", 20 * time.Second}, `kubelet\.service started 2\ds ago, and has to be up for 1m0s`},
		"from the future":     {unit{"loaded", "active", -time.Hour}, `kubelet\.service started 0s ago, and has to be up for 1m0s`},
		"stopped":             {unit{"loaded", "inactive", long}, `kubelet\.service is not active: inactive`},
		"failed":              {unit{"loaded", "failed", long}, `kubelet\.service is not active: failed`},
		"starts again":        {unit{"loaded", "activating", long}, `kubelet\.service is not active: activating`},
		"masked":              {unit{"masked", "inactive", 0}, `kubelet\.service is not active: inactive`},
		"run by other means":  {unit{"not-found", "inactive", 0}, ""},
		"a state of an enemy": {unit{"loaded", "a\nb", long}, `kubelet\.service is not active: a b`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bustest.Start(t, "")
			serveManager(t, b, func() unit { return c.unit })
			isHeld(t, systemd.Kubelet{Unit: "kubelet.service", Bus: b.Address}, c.want)
		})
	}
}

// isHeld asserts that there is one hold, with a reason matching the pattern; empty: none.
func isHeld(t *testing.T, k systemd.Kubelet, pattern string) {
	t.Helper()
	holds := k.Holds(t.Context())
	if pattern == "" {
		assert.Empty(t, holds)
		return
	}
	require.Len(t, holds, 1)
	assert.Equal(t, status.HoldKubelet, holds[0].Name)
	assert.Regexp(t, "^"+pattern+"$", holds[0].Reason)
}

func TestNodesWithoutKubeletsUnit(t *testing.T) {
	t.Parallel()
	isHeld(t, systemd.Kubelet{Unit: "kubelet.service"}, "")
	isHeld(t, systemd.Kubelet{Unit: "kubelet.service", Bus: bus.At(filepath.Join(t.TempDir(), "none"))}, "")
	isHeld(t, systemd.Kubelet{Unit: "kubelet.service", Bus: bustest.Start(t, "").Address}, "")
}

func TestSilentManager(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		get  any
		want string
	}{
		"silence": {
			func(string, string) (dbus.Variant, *dbus.Error) { <-t.Context().Done(); return dbus.Variant{}, nil },
			"kubelet.service: org.freedesktop.systemd1: no answer in time",
		},
		"an error": {
			func(string, string) (dbus.Variant, *dbus.Error) {
				return dbus.Variant{}, dbus.NewError("org.freedesktop.DBus.Error.AccessDenied", []any{"no\nway"})
			},
			"kubelet.service: org.freedesktop.systemd1: org.freedesktop.DBus.Error.AccessDenied: no way",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bustest.Start(t, "")
			b.Serve(t, "org.freedesktop.systemd1", "/org/freedesktop/systemd1/unit/kubelet_2eservice",
				"org.freedesktop.DBus.Properties", map[string]any{"Get": c.get})
			isHeld(t, systemd.Kubelet{Unit: "kubelet.service", Bus: b.Address}, regexp.QuoteMeta(c.want))
		})
	}
	t.Run("another type", func(t *testing.T) {
		t.Parallel()
		b := bustest.Start(t, "")
		b.Serve(t, "org.freedesktop.systemd1", "/org/freedesktop/systemd1/unit/kubelet_2eservice",
			"org.freedesktop.DBus.Properties", map[string]any{"Get": func(string, string) (dbus.Variant, *dbus.Error) {
				return dbus.MakeVariant([]string{"loaded"}), nil
			}})
		isHeld(t, systemd.Kubelet{Unit: "kubelet.service", Bus: b.Address}, "kubelet.service: org.freedesktop.systemd1: dbus.Store: .*")
	})
	t.Run("a bus without a voice", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "bus")
		l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
		require.NoError(t, err)
		defer func() { _ = l.Close() }()
		isHeld(t, systemd.Kubelet{Unit: "kubelet.service", Bus: bus.At(path)}, "kubelet.service: system bus: no answer in time")
	})
}

// An interrupted query does not mean that kubelet is well.
func TestKubeletHoldsEndWithTheContext(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	serveManager(t, b, func() unit { cancel(); return unit{"loaded", "active", time.Hour} })
	holds := systemd.Kubelet{Unit: "kubelet.service", Bus: b.Address}.Holds(ctx)
	if assert.Len(t, holds, 1) {
		assert.Equal(t, status.HoldKubelet, holds[0].Name)
	}
}

func TestKubeletThatHasNotStarted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		is   bustest.Booting
		want string // empty: it has not started
	}{
		"in the boot":            {bustest.Booting{System: "starting", Load: "loaded", Left: 0}, ""},
		"early in the boot":      {bustest.Booting{System: "initializing", Load: "loaded", Left: 0}, ""},
		"kubelet has started":    {bustest.Booting{System: "starting", Load: "loaded", Left: 5}, "kubelet.service: has been started since the boot"},
		"the boot is over":       {bustest.Booting{System: "running", Load: "loaded", Left: 0}, "the boot is over: the system is running"},
		"over with a failure":    {bustest.Booting{System: "degraded", Load: "loaded", Left: 0}, "the boot is over: the system is degraded"},
		"run by other means":     {bustest.Booting{System: "starting", Load: "not-found", Left: 0}, "kubelet.service: not-found"},
		"never to start":         {bustest.Booting{System: "starting", Load: "masked", Left: 0}, "kubelet.service: masked"},
		"a manager without boot": {bustest.Booting{System: "", Load: "loaded", Left: 0}, "the boot is over: the system is "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bustest.Start(t, "")
			c.is.Serve(t, b)
			err := systemd.Kubelet{Unit: "kubelet.service", Bus: b.Address}.Unstarted(t.Context())
			if c.want == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, c.want)
			}
		})
	}
	assert.ErrorIs(t, systemd.Kubelet{Unit: "kubelet.service", Bus: bus.At(filepath.Join(t.TempDir(), "none"))}.Unstarted(t.Context()), bus.ErrNone)
	assert.ErrorIs(t, systemd.Kubelet{Unit: "kubelet.service", Bus: bustest.Start(t, "").Address}.Unstarted(t.Context()), bus.ErrAbsent)
}

// Early in a boot the bus exists before the manager has joined it.
func TestUnstartedWaitsForTheManager(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t, "")
	ended := make(chan error)
	go func() { ended <- systemd.Kubelet{Unit: "kubelet.service", Bus: b.Address}.Unstarted(t.Context()) }()
	bustest.Booting{System: "starting", Load: "loaded", Left: 0}.Serve(t, b)
	assert.NoError(t, <-ended)
}
