// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/api"
	"github.com/kubic-project/image-update-agent/internal/bus"
	"github.com/kubic-project/image-update-agent/systemd"
)

// running is the daemon as its status socket shows it; nil: none answers.
func (s settings) running(ctx context.Context) *agent.Status {
	status, err := api.NewClient(s.socket("status.sock")).Status(ctx)
	if err != nil {
		return nil
	}
	return &status
}

// checkService looks at the units as the service manager has them. daemon is nil
// where none answers.
func (s settings) checkService(ctx context.Context, daemon *agent.Status) []finding {
	const check = "service"
	unit, err := systemd.ReadState(ctx, s.systemBus(), systemd.ServiceUnit)
	if err != nil {
		if errors.Is(err, bus.ErrNone) || errors.Is(err, bus.ErrAbsent) {
			return []finding{ok(check, "not known: no service manager is on a system bus here")}
		}
		return []finding{warn(check, err.Error(), "see whether systemd answers: busctl status org.freedesktop.systemd1")}
	}
	out := []finding{serviceFinding(unit, daemon)}
	if unit.Load != "loaded" {
		return out
	}
	out = append(out, watchdogFinding(unit))
	for _, b := range besides() {
		if state, err := systemd.ReadState(ctx, s.systemBus(), b.name); err == nil {
			out = append(out, b.judge(state, unit)...)
		}
	}
	return out
}

// serviceFinding judges the daemon's own unit, the worst first.
func serviceFinding(unit systemd.State, daemon *agent.Status) finding {
	const check = "service"
	switch {
	case unit.Load == "not-found" && daemon != nil:
		return ok(check, "not a service of systemd: the daemon runs by other means")
	case unit.Load == "not-found":
		return warn(check, "it is not installed", "install the package image-update-agent")
	case unit.Load == "masked":
		return warn(check, "it is masked", "systemctl unmask image-update-agent")
	case unit.Load != "loaded":
		return fail(check, fmt.Errorf("systemd does not read it: %s", unit.Load),
			"systemd-analyze verify "+systemd.ServiceUnit)
	case unit.Active == "failed":
		return fail(check, fmt.Errorf("it has failed: %s", unit.Result),
			"journalctl -u image-update-agent, then systemctl restart image-update-agent")
	case unit.Changed:
		return warn(check, "systemd works with other files than those on disk",
			"systemctl daemon-reload, then systemctl restart image-update-agent")
	case unit.Active == "activating" && unit.Restarts > 0:
		return fail(check, fmt.Errorf("it does not start: tried again %d times", unit.Restarts),
			"journalctl -u image-update-agent")
	case unit.Active == "inactive":
		return warn(check, "it does not run", "systemctl enable --now image-update-agent")
	case unit.File == "disabled":
		return warn(check, "it is not enabled: after the next boot it is not there", "systemctl enable image-update-agent")
	case unit.Restarts > 0:
		return advise(check, fmt.Sprintf("it had to be started again %d times", unit.Restarts),
			"journalctl -u image-update-agent says why")
	}
	detail := unit.Active + ", " + cmp.Or(unit.File, "no unit file")
	if len(unit.DropIns) > 0 {
		detail += "; drop-ins: " + strings.Join(unit.DropIns, ", ")
	}
	return ok(check, detail)
}

func watchdogFinding(unit systemd.State) finding {
	const check = "watchdog"
	if unit.Watchdog == 0 {
		return warn(check, "it is off: a daemon that hangs is not ended",
			"take WatchdogSec= out of the drop-ins: systemctl cat image-update-agent shows them")
	}
	return ok(check, fmt.Sprintf("a daemon that hangs is ended after %s", unit.Watchdog))
}

// beside is a unit that works together with the daemon's.
type beside struct{ check, name, without string }

func besides() []beside {
	return []beside{{
		check: "status socket", name: systemd.SocketUnit,
		without: "who asks for the status while the daemon restarts gets no answer",
	}, {
		check: "rendering at boot", name: systemd.RenderUnit,
		without: "after an update of the system pods start with old pod manifests, and then again with new ones",
	}}
}

// judge judges it; of one that is not installed nothing is said.
func (b beside) judge(unit, service systemd.State) []finding {
	switch {
	case unit.Load == "not-found":
		return nil
	case unit.Load != "loaded":
		return []finding{warn(b.check, fmt.Sprintf("%s is %s: %s", b.name, unit.Load, b.without), "systemctl unmask "+b.name)}
	case b.name == systemd.SocketUnit && service.Active == "active" && unit.Active != "active":
		return []finding{warn(b.check, fmt.Sprintf("%s is %s: %s", b.name, unit.Active, b.without),
			"systemctl restart "+b.name+" "+systemd.ServiceUnit)}
	case b.name == systemd.RenderUnit && unit.File == "disabled":
		return []finding{warn(b.check, fmt.Sprintf("%s is not enabled: %s", b.name, b.without), "systemctl enable "+b.name)}
	case unit.Active == "failed":
		return []finding{warn(b.check, b.name+" has failed", "journalctl -u "+b.name)}
	default:
		return []finding{ok(b.check, b.name+" is "+unit.Active)}
	}
}

// checkVersion compares the daemon with this program.
func checkVersion(daemon *agent.Status) []finding {
	const check = "version"
	switch {
	case daemon == nil:
		return nil // who needs it says so
	case daemon.Version != version:
		return []finding{warn(check, fmt.Sprintf("the daemon is %s, and this program %s", daemon.Version, version),
			"systemctl restart image-update-agent, when it is not applying; after an update of the system, the reboot")}
	default:
		return []finding{ok(check, version)}
	}
}
