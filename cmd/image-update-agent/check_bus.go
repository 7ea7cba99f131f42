// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/api"
	"github.com/kubic-project/image-update-agent/internal/bus"
)

// busWait bounds what the bus is asked for.
const busWait = 10 * time.Second

// checkBus looks at the daemon's place on the system bus, and at who decides there.
func (s settings) checkBus(ctx context.Context, daemon *agent.Status) []finding {
	const check = "d-bus"
	const instead = "the command line works without it, and those who listen on the bus hear nothing"
	ctx, cancel := context.WithTimeout(ctx, busWait)
	defer cancel()
	conn, err := bus.Open(ctx, s.systemBus())
	switch {
	case errors.Is(err, bus.ErrNone):
		return []finding{ok(check, "there is no system bus")}
	case err != nil:
		return []finding{warn(check, err.Error(), "systemctl status dbus")}
	}
	defer conn.Close()
	name := api.BusName + ".conf"
	if !s.isThere("usr/share/dbus-1/system.d", name) && !s.isThere("etc/dbus-1/system.d", name) {
		return []finding{advise(check, "its policy "+name+" is not installed: "+instead,
			"install the whole package, then systemctl reload dbus")}
	}
	var owned bool
	if err := ask(ctx, conn, "NameHasOwner", api.BusName, &owned); err != nil {
		return []finding{warn(check, err.Error(), "systemctl status dbus")}
	}
	if daemon != nil && !owned {
		return []finding{warn(check, "the daemon runs, and has not got its name "+api.BusName+": "+instead,
			"systemctl reload dbus, if the policy is younger than the bus; then journalctl -u image-update-agent")}
	}
	return []finding{ok(check, api.BusName), s.checkPolkit(ctx, conn)}
}

// checkPolkit tells whether others than root can act on the bus.
func (s settings) checkPolkit(ctx context.Context, conn *bus.Conn) finding {
	const check = "polkit"
	const authority = "org.freedesktop.PolicyKit1"
	if !s.isThere("usr/share/polkit-1/actions", api.BusName+".policy") {
		return advise(check, "its actions are not installed: on the bus root alone can act", "install the whole package")
	}
	var owned bool
	var startable []string
	err := ask(ctx, conn, "NameHasOwner", authority, &owned)
	if err == nil && !owned {
		err = conn.Ask(ctx, bus.Question{
			Service: "org.freedesktop.DBus", Path: "/org/freedesktop/DBus", Method: "org.freedesktop.DBus.ListActivatableNames",
		}, &startable)
	}
	if err != nil {
		return warn(check, err.Error(), "systemctl status dbus")
	}
	for _, name := range startable {
		owned = owned || name == authority
	}
	if !owned {
		return advise(check, "polkitd is not there: on the bus root alone can act", "install polkit, if others are to act")
	}
	return ok(check, "it decides who may act on the bus")
}

// ask asks the bus itself about a name.
func ask(ctx context.Context, conn *bus.Conn, method, name string, into any) error {
	return conn.Ask(ctx, bus.Question{
		Service: "org.freedesktop.DBus", Path: "/org/freedesktop/DBus",
		Method: "org.freedesktop.DBus." + method, Args: []any{name},
	}, into)
}

func (s settings) isThere(dir, name string) bool {
	info, err := os.Stat(filepath.Join(s.root, dir, name))
	return err == nil && info.Mode().IsRegular()
}
