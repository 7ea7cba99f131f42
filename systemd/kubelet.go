// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/bus"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// HoldKubelet is the name of the hold: kubelet is not there to start a pod
// again, or has only just come.
const HoldKubelet = "kubelet"

const (
	kubeletUnit = "kubelet.service"
	// kubeletSettles is how long kubelet has to be up: until then it may still be
	// bringing up its pods, or end again.
	kubeletSettles = time.Minute
	// busPatience is how long the manager may take.
	busPatience = 2 * time.Second
	// bootPatience is how long it may take while it starts everything else.
	bootPatience = 10 * time.Second
)

// Kubelet is kubelet as the service manager sees it. On a node without kubelet's unit,
// or without a bus, kubelet is run by other means: no holds.
type Kubelet struct {
	Bus string // D-Bus address of the system bus; empty: there is none
}

// Holds lists why kubelet cannot be relied on now.
func (k Kubelet) Holds(ctx context.Context) []status.Hold {
	if k.Bus == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, busPatience)
	defer cancel()
	unit, err := readUnit(ctx, k.Bus, kubeletUnit)
	switch {
	case errors.Is(err, bus.ErrNone), errors.Is(err, bus.ErrAbsent):
		return nil
	case err != nil:
		return []status.Hold{{Name: HoldKubelet, Reason: fmt.Sprintf("%s: %v", kubeletUnit, err)}}
	case unit.load == "not-found":
		return nil
	case unit.active != "active" && unit.active != "reloading":
		return []status.Hold{{Name: HoldKubelet, Reason: fmt.Sprintf("%s is not active: %s", kubeletUnit, unit.active)}}
	case unit.up < kubeletSettles:
		return []status.Hold{{Name: HoldKubelet, Reason: fmt.Sprintf("%s started %s ago, and has to be up for %s",
			kubeletUnit, unit.up.Truncate(time.Second), kubeletSettles)}}
	}
	return nil
}

// Exists reports whether the service manager has a unit of kubelet's.
func (k Kubelet) Exists(ctx context.Context) bool {
	if k.Bus == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, busPatience)
	defer cancel()
	unit, err := readUnit(ctx, k.Bus, kubeletUnit)
	return err == nil && unit.load != "not-found"
}

// Unstarted returns an error unless kubelet has certainly not been started since the
// node booted: the boot is not over, and the unit, which must exist, has never left its
// inactive state.
func (k Kubelet) Unstarted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootPatience)
	defer cancel()
	conn, err := bus.Open(ctx, k.Bus)
	if err != nil {
		return err
	}
	defer conn.Close()
	again := time.NewTicker(busPatience / 20)
	defer again.Stop()
	enough := time.After(busPatience)
	for {
		err = unstarted(ctx, conn)
		if !errors.Is(err, bus.ErrAbsent) {
			return err
		}
		select { // early in a boot the bus is there a moment before the manager is on it
		case <-enough:
			return err
		case <-again.C:
		}
	}
}

func unstarted(ctx context.Context, conn *bus.Conn) error {
	var system, load string
	var left uint64
	unit := unitPath(kubeletUnit)
	if err := read(ctx, conn, property{"/org/freedesktop/systemd1", "Manager.SystemState", &system},
		property{unit, "Unit.LoadState", &load}, property{unit, "Unit.InactiveExitTimestampMonotonic", &left}); err != nil {
		return fmt.Errorf("%s: %w", kubeletUnit, err)
	}
	switch {
	case load != "loaded":
		return fmt.Errorf("%s: %s", kubeletUnit, outside.Text(load))
	case left != 0:
		return fmt.Errorf("%s: has been started since the boot", kubeletUnit)
	case system != "initializing" && system != "starting":
		return fmt.Errorf("the boot is over: the system is %s", outside.Text(system))
	}
	return nil
}

// unitState is what the manager knows of a unit.
type unitState struct {
	load   string        // LoadState: loaded, not-found, masked ...
	active string        // ActiveState: active, reloading, inactive, failed, activating, deactivating ...
	up     time.Duration // since it became active the last time
}

// readUnit reads the state of a unit, which the manager loads for that
// (org.freedesktop.systemd1(5)).
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

// property is a property of one of the manager's objects, as Interface.Name, and where
// its value goes.
type property struct {
	path, name string
	into       any
}

// read reads properties.
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

// uptime is how long ago a time of the monotonic clock was, in microseconds: of
// that clock, as the other one is set now and then.
func uptime(since uint64) (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("monotonic clock: %w", err)
	}
	now := uint64(ts.Nano() / 1000)
	return time.Duration(now-min(now, since)) * time.Microsecond, nil
}

// unitPath is the object path of a unit: what is no letter or digit is escaped,
// as by sd_bus_path_encode(3).
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
