// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
	"github.com/kubic-project/image-update-agent/systemd"
)

// checkService looks at the units as the service manager has them. daemon is nil
// where none answers.
func (n Node) checkService(ctx context.Context, daemon *status.Status) []Finding {
	const check = "service"
	unit, err := systemd.ReadState(ctx, n.Bus, systemd.ServiceUnit)
	if err != nil {
		if errors.Is(err, bus.ErrNone) || errors.Is(err, bus.ErrAbsent) {
			return []Finding{skipped(check, "no service manager on the system bus")}
		}
		return []Finding{warn(check, err.Error(), "check that systemd answers: busctl status org.freedesktop.systemd1")}
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
		return ok(check, "not installed; the daemon was started another way")
	case unit.Load == "not-found":
		return warn(check, "not installed", "install the package image-update-agent")
	case unit.Load == "masked":
		return warn(check, "masked", "run systemctl unmask image-update-agent")
	case unit.Load != "loaded":
		return fail(check, fmt.Errorf("systemd cannot load the unit: %s", unit.Load),
			"systemd-analyze verify "+systemd.ServiceUnit)
	case unit.Active == "failed":
		return fail(check, fmt.Errorf("failed: %s", unit.Result),
			"see journalctl -u image-update-agent, then run systemctl restart image-update-agent")
	case unit.Changed:
		return warn(check, "the unit files changed on disk",
			"run systemctl daemon-reload, then systemctl restart image-update-agent")
	case unit.Active == "activating" && unit.Restarts > 0:
		return fail(check, fmt.Errorf("does not start after %d restarts", unit.Restarts),
			"journalctl -u image-update-agent")
	case unit.Active == "inactive":
		return warn(check, "not running", "run systemctl enable --now image-update-agent")
	case unit.File == "disabled":
		return warn(check, "not enabled: it will not start at the next boot", "run systemctl enable image-update-agent")
	case unit.Restarts > 0:
		return advise(check, fmt.Sprintf("systemd had to restart it %d times", unit.Restarts),
			"see journalctl -u image-update-agent")
	}
	detail := unit.Active + ", " + cmp.Or(unit.File, "no unit file")
	if admins := slices.DeleteFunc(slices.Clone(unit.DropIns), isPackages); len(admins) > 0 {
		detail += "; drop-ins: " + strings.Join(admins, ", ")
	}
	return ok(check, detail)
}

// isPackages reports whether a drop-in is of a package.
func isPackages(dropIn string) bool { return strings.HasPrefix(dropIn, "/usr/lib/systemd/") }

func watchdogFinding(unit systemd.State) Finding {
	const check = "watchdog"
	if unit.Watchdog == 0 {
		return warn(check, "off: systemd does not restart a daemon that hangs",
			"remove WatchdogSec= from the drop-ins, which systemctl cat image-update-agent shows")
	}
	return ok(check, fmt.Sprintf("systemd restarts a daemon that hangs for %s", unit.Watchdog))
}

// beside is a unit that works together with the daemon's.
type beside struct{ title, unit, without string }

func besides() []beside {
	return []beside{{
		title: "status socket", unit: systemd.SocketUnit,
		without: "clients get no status while the daemon restarts",
	}, {
		title: "rendering at boot", unit: systemd.RenderUnit,
		without: "after a system update pods start with old pod manifests, and restart with new ones",
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
		return []Finding{warn(check, fmt.Sprintf("the daemon is version %s, this program is version %s", daemon.Version,
			version),
			"run systemctl restart image-update-agent when no apply is running; after a system update, reboot")}
	default:
		return []Finding{ok(check, version)}
	}
}
