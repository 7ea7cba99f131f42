// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
)

// busWait bounds what the bus is asked for.
const busWait = 10 * time.Second

// checkBus looks at the daemon's place on the system bus, and at what decides there.
func (n Node) checkBus(ctx context.Context, daemon *status.Status) []Finding {
	const check = "d-bus"
	const instead = "the command line works without it, but programs on the bus get no signals"
	ctx, cancel := context.WithTimeout(ctx, busWait)
	defer cancel()
	conn, err := bus.Open(ctx, n.Bus)
	switch {
	case errors.Is(err, bus.ErrNone):
		return []Finding{skipped(check, "there is no system bus")}
	case err != nil:
		return []Finding{warn(check, err.Error(), "systemctl status dbus")}
	}
	defer conn.Close()
	name := api.BusName + ".conf"
	if !isThere(n.at("usr/share/dbus-1/system.d", name)) && !isThere(n.at("etc/dbus-1/system.d", name)) {
		return []Finding{advise(check, "policy "+name+" is not installed: "+instead,
			"install the complete package, then run systemctl reload dbus")}
	}
	var owned bool
	if err := conn.Ask(ctx, bus.Driver("NameHasOwner", api.BusName), &owned); err != nil {
		return []Finding{warn(check, err.Error(), "systemctl status dbus")}
	}
	if daemon != nil && !owned {
		return []Finding{warn(check, "the daemon is running but does not own its name "+api.BusName+": "+instead,
			"run systemctl reload dbus, then see journalctl -u image-update-agent")}
	}
	return []Finding{ok(check, api.BusName), n.checkPolkit(ctx, conn)}
}

// checkPolkit says whether others than root can act on the bus.
func (n Node) checkPolkit(ctx context.Context, conn *bus.Conn) Finding {
	const check = "polkit"
	const authority = "org.freedesktop.PolicyKit1"
	if !isThere(n.at("usr/share/polkit-1/actions", api.BusName+".policy")) {
		return advise(check, "polkit actions are not installed: only root can act over D-Bus", "install the complete package")
	}
	var owned bool
	var startable []string
	err := conn.Ask(ctx, bus.Driver("NameHasOwner", authority), &owned)
	if err == nil && !owned {
		err = conn.Ask(ctx, bus.Driver("ListActivatableNames"), &startable)
	}
	switch {
	case err != nil:
		return warn(check, err.Error(), "systemctl status dbus")
	case !owned && !slices.Contains(startable, authority):
		return advise(check, "polkit is not installed: only root can act over D-Bus",
			"install polkit if other users should act")
	default:
		return ok(check, "polkit decides who may act over D-Bus")
	}
}

func isThere(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
