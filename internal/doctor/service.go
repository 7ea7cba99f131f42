// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/bus"
	"github.com/kubic-project/image-update-agent/systemd"
)

// checkService looks at the units as the service manager has them. daemon is nil
// where none answers.
func (n Node) checkService(ctx context.Context, daemon *status.Status) []Finding {
	const check = "service"
	unit, err := systemd.ReadState(ctx, n.Bus, systemd.ServiceUnit)
	if err != nil {
		if errors.Is(err, bus.ErrNone) || errors.Is(err, bus.ErrAbsent) {
			return []Finding{skipped(check, "no service manager is on a system bus here")}
		}
		return []Finding{warn(check, err.Error(), "see whether systemd answers: busctl status org.freedesktop.systemd1")}
	}
	out := []Finding{serviceFinding(unit, daemon)}
	if unit.Load != "loaded" {
		return out
	}
	out = append(out, watchdogFinding(unit))
	for _, b := range besides() {
		if state, err := systemd.ReadState(ctx, n.Bus, b.unit); err == nil {
			out = append(out, b.check(state, unit)...)
		}
	}
	if unit.PID != 0 {
		dirs, files := n.written()
		out = append(out, checkSandbox(filepath.Join("/proc", strconv.Itoa(int(unit.PID))), dirs, files)...)
	}
	return out
}

// serviceFinding is about the daemon's own unit, the worst first.
func serviceFinding(unit systemd.State, daemon *status.Status) Finding {
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

func watchdogFinding(unit systemd.State) Finding {
	const check = "watchdog"
	if unit.Watchdog == 0 {
		return warn(check, "it is off: a daemon that hangs is not ended",
			"take WatchdogSec= out of the drop-ins: systemctl cat image-update-agent shows them")
	}
	return ok(check, fmt.Sprintf("a daemon that hangs is ended after %s", unit.Watchdog))
}

// beside is a unit that works together with the daemon's.
type beside struct{ title, unit, without string }

func besides() []beside {
	return []beside{{
		title: "status socket", unit: systemd.SocketUnit,
		without: "clients that ask for the status while the daemon restarts get no answer",
	}, {
		title: "rendering at boot", unit: systemd.RenderUnit,
		without: "after an update of the system pods start with old pod manifests, and then again with new ones",
	}}
}

// check has nothing to say of a unit that is not installed.
func (b beside) check(unit, service systemd.State) []Finding {
	switch {
	case unit.Load == "not-found":
		return nil
	case unit.Load != "loaded":
		return []Finding{warn(b.title, fmt.Sprintf("%s is %s: %s", b.unit, unit.Load, b.without), "systemctl unmask "+b.unit)}
	case b.unit == systemd.SocketUnit && service.Active == "active" && unit.Active != "active":
		return []Finding{warn(b.title, fmt.Sprintf("%s is %s: %s", b.unit, unit.Active, b.without),
			"systemctl restart "+b.unit+" "+systemd.ServiceUnit)}
	case b.unit == systemd.RenderUnit && unit.File == "disabled":
		return []Finding{warn(b.title, fmt.Sprintf("%s is not enabled: %s", b.unit, b.without), "systemctl enable "+b.unit)}
	case unit.Active == "failed":
		return []Finding{warn(b.title, b.unit+" has failed", "journalctl -u "+b.unit)}
	default:
		return []Finding{ok(b.title, b.unit+" is "+unit.Active)}
	}
}

// checkVersion compares the daemon with this program.
func checkVersion(daemon *status.Status, version string) []Finding {
	const check = "version"
	switch {
	case daemon == nil:
		return nil // who needs it says so
	case daemon.Version != version:
		return []Finding{warn(check, fmt.Sprintf("the daemon is %s, and this program %s", daemon.Version, version),
			"systemctl restart image-update-agent, when it is not applying; after an update of the system, the reboot")}
	default:
		return []Finding{ok(check, version)}
	}
}
