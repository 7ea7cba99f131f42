// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
)

// The units of the package.
const (
	ServiceUnit = "image-update-agent.service"
	SocketUnit  = "image-update-agent.socket"
	RenderUnit  = "image-update-agent-render.service"
)

// State is the state of a unit (org.freedesktop.systemd1(5)).
type State struct {
	Load     string   // loaded, not-found, masked, bad-setting, error
	File     string   // enabled, disabled, static, masked ...; empty: no file
	Active   string   // active, reloading, inactive, failed, activating, deactivating
	Changed  bool     // the unit's files changed since the manager read them
	DropIns  []string // paths
	Result   string   // of an ended service: success, exit-code, watchdog ...
	Restarts uint32   // of a service, by the manager
	Watchdog time.Duration
	PID      uint32 // of a running service
}

// stateTimeout is longer than a cycle's: the node may be busy.
const stateTimeout = 10 * time.Second

// ReadState asks the manager at a D-Bus address for the state of a unit.
func ReadState(ctx context.Context, address, unit string) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	conn, err := bus.Open(ctx, address)
	if err != nil {
		return State{}, err
	}
	defer conn.Close()
	var s State
	var watchdog uint64
	path := unitPath(unit)
	all := []property{
		{path, "Unit.LoadState", &s.Load},
		{path, "Unit.UnitFileState", &s.File},
		{path, "Unit.ActiveState", &s.Active},
		{path, "Unit.NeedDaemonReload", &s.Changed},
		{path, "Unit.DropInPaths", &s.DropIns},
	}
	if strings.HasSuffix(unit, ".service") {
		all = append(all, property{path, "Service.Result", &s.Result}, property{path, "Service.NRestarts", &s.Restarts},
			property{path, "Service.WatchdogUSec", &watchdog}, property{path, "Service.MainPID", &s.PID})
	}
	if err := read(ctx, conn, all...); err != nil {
		return State{}, fmt.Errorf("%s: %w", unit, err)
	}
	for _, text := range []*string{&s.Load, &s.File, &s.Active, &s.Result} {
		*text = outside.Text(*text)
	}
	for n := range s.DropIns {
		s.DropIns[n] = outside.Text(s.DropIns[n])
	}
	if watchdog < uint64(time.Hour/time.Microsecond)*24 { // the largest number means never
		s.Watchdog = time.Duration(watchdog) * time.Microsecond
	}
	return s, nil
}

// The units that run hooks.
const (
	HookPath    = "image-update-agent-hook.path"
	HookService = "image-update-agent-hook.service"
)

// Active returns the ActiveState of a unit (active, inactive, failed, activating, ...),
// or not-found if there is no such unit. The address is the system bus's; the error is
// bus.ErrNone if there is none.
func Active(ctx context.Context, address, unit string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	s, err := readUnit(ctx, address, unit)
	if err == nil && s.load == "not-found" {
		return s.load, nil
	}
	return s.active, err
}
