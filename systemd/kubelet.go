// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
)

const (
	// kubeletSettles is how long kubelet must be up: before, it may still be starting its pods, or end again.
	kubeletSettles = time.Minute
	// busTimeout limits an answer of the service manager.
	busTimeout = 2 * time.Second
	// bootTimeout limits it during the boot.
	bootTimeout = 10 * time.Second
)

// Kubelet is kubelet's unit. A node without the unit, or without a bus, runs kubelet by
// other means and has no holds.
type Kubelet struct {
	Bus  string // D-Bus address of the system bus; empty if there is none
	Unit string // its name, for example kubelet.service
}

// Holds returns why kubelet is not ready to start a pod.
func (k Kubelet) Holds(ctx context.Context) []status.Hold {
	if k.Bus == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	unit, err := readUnit(ctx, k.Bus, k.Unit)
	switch {
	case errors.Is(err, bus.ErrNone), errors.Is(err, bus.ErrAbsent):
		return nil
	case err != nil:
		return []status.Hold{{Name: status.HoldKubelet, Reason: fmt.Sprintf("%s: %v", k.Unit, err)}}
	case unit.load == "not-found":
		return nil
	case unit.active != "active" && unit.active != "reloading":
		return []status.Hold{{Name: status.HoldKubelet, Reason: fmt.Sprintf("%s is not active: %s", k.Unit, unit.active)}}
	case unit.up < kubeletSettles:
		return []status.Hold{{Name: status.HoldKubelet, Reason: fmt.Sprintf("%s started %s ago, and has to be up for %s",
			k.Unit, unit.up.Truncate(time.Second), kubeletSettles)}}
	}
	return nil
}

// Exists reports whether the service manager has kubelet's unit.
func (k Kubelet) Exists(ctx context.Context) bool {
	if k.Bus == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	unit, err := readUnit(ctx, k.Bus, k.Unit)
	return err == nil && unit.load != "not-found"
}

// IsBooted reports whether systemd is process 1 of the system below root, as sd_booted(3) does.
func IsBooted(root string) bool {
	info, err := os.Lstat(filepath.Join("/", root, "run/systemd/system"))
	return err == nil && info.IsDir()
}

// Unstarted returns an error unless kubelet has certainly not been started since the
// node booted: the boot is not over, and the existing unit was always inactive.
func (k Kubelet) Unstarted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	conn, err := bus.Open(ctx, k.Bus)
	if err != nil {
		return fmt.Errorf("systemd cannot be asked: %w", err)
	}
	defer conn.Close()
	return joined(ctx, func() error { return k.unstarted(ctx, conn) })
}

// joined repeats a question while the manager is not on the bus: early in a boot, the bus runs before it.
func joined(ctx context.Context, ask func() error) error {
	retry := time.NewTicker(busTimeout / 20)
	defer retry.Stop()
	timeout := time.After(busTimeout)
	for {
		err := ask()
		if !errors.Is(err, bus.ErrAbsent) {
			return err
		}
		select {
		case <-timeout:
			return err
		case <-ctx.Done():
			return err
		case <-retry.C:
		}
	}
}

func (k Kubelet) unstarted(ctx context.Context, conn *bus.Conn) error {
	var system, load string
	var left uint64
	unit := unitPath(k.Unit)
	if err := read(ctx, conn, property{"/org/freedesktop/systemd1", "Manager.SystemState", &system},
		property{unit, "Unit.LoadState", &load}, property{unit, "Unit.InactiveExitTimestampMonotonic", &left}); err != nil {
		return fmt.Errorf("%s: %w", k.Unit, err)
	}
	switch {
	case load != "loaded":
		return fmt.Errorf("%s: %s", k.Unit, outside.Text(load))
	case left != 0:
		return fmt.Errorf("%s: has been started since the boot", k.Unit)
	case system != "initializing" && system != "starting":
		return fmt.Errorf("the boot is over: the system is %s", outside.Text(system))
	}
	return nil
}

type unitState struct {
	load   string        // LoadState: loaded, not-found, masked ...
	active string        // ActiveState: active, reloading, inactive, failed, activating, deactivating ...
	up     time.Duration // since it became active the last time
}

// readUnit reads the state of a unit; the manager loads it if needed (org.freedesktop.systemd1(5)).
func readUnit(ctx context.Context, address, unit string) (unitState, error) {
	conn, err := bus.Open(ctx, address)
	if err != nil {
		return unitState{}, err
	}
	defer conn.Close()
	var s unitState
	var since uint64
	path := unitPath(unit)
	if err := read(ctx, conn, property{path, "Unit.LoadState", &s.load}, property{path, "Unit.ActiveState", &s.active},
		property{path, "Unit.ActiveEnterTimestampMonotonic", &since}); err != nil {
		return s, err
	}
	s.load, s.active = outside.Text(s.load), outside.Text(s.active)
	s.up, err = uptime(since)
	return s, err
}

// property is a property of one of the manager's objects (Interface.Name), and the
// destination of its value.
type property struct {
	path, name string
	into       any
}

func read(ctx context.Context, conn *bus.Conn, properties ...property) error {
	for _, p := range properties {
		face, name, _ := strings.Cut(p.name, ".")
		if err := conn.Ask(ctx, bus.Question{
			Service: "org.freedesktop.systemd1", Path: p.path, Method: "org.freedesktop.DBus.Properties.Get",
			Args: []any{"org.freedesktop.systemd1." + face, name},
		}, p.into); err != nil {
			return err
		}
	}
	return nil
}

// uptime returns the time since a time of the monotonic clock, in microseconds.
func uptime(since uint64) (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("monotonic clock: %w", err)
	}
	now := uint64(ts.Nano() / 1000)
	return time.Duration(now-min(now, since)) * time.Microsecond, nil
}

// unitPath returns the object path of a unit, escaped as by sd_bus_path_encode(3).
func unitPath(unit string) string {
	path := []byte("/org/freedesktop/systemd1/unit/")
	for i, c := range []byte(unit) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > 0 && c >= '0' && c <= '9' {
			path = append(path, c)
			continue
		}
		path = fmt.Appendf(path, "_%02x", c)
	}
	return string(path)
}
