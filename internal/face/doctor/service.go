// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
	"github.com/kubic-project/image-update-agent/internal/face/hook"
	"github.com/kubic-project/image-update-agent/internal/node/config"
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

// checkSandbox compares what the daemon has to write with what its unit lets it
// write. proc is the daemon's directory below /proc.
func checkSandbox(proc string, directories, files []string) []Finding {
	const check = "unit"
	var out []Finding
	for _, dir := range directories {
		switch readOnly, err := isReadOnly(filepath.Join(proc, "root", dir)); {
		case errors.Is(err, fs.ErrNotExist): // who needs it says so
		case err != nil:
			detail := fmt.Sprintf("cannot tell what the daemon may write: %v", err)
			out = append(out, warn(check, detail, asRoot))
		case readOnly:
			out = append(out, fail(check, fmt.Errorf("%s: read-only for the daemon", dir),
				"run systemctl restart image-update-agent if the directory is newer than the daemon; "+
					"otherwise add ReadWritePaths="+dir+" below [Service] with systemctl edit image-update-agent"))
		}
	}
	for _, file := range files {
		group, known, err := knowsGroupOf(proc, file)
		if err == nil && !known {
			detail := fmt.Sprintf("%s: the daemon cannot keep the group %d of the file, so it does not write it", file, group)
			out = append(out, warn(check, detail,
				"chgrp root "+file+", or give the daemon the permission: see docs/configuration.md"))
		}
	}
	if len(out) == 0 {
		return []Finding{ok(check, "the daemon can write all its files")}
	}
	return out
}

// isReadOnly reports whether a directory is on a read-only mount. Below the root of a process (proc_pid_root(5)) these
// are the mounts of the process.
func isReadOnly(dir string) (bool, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return false, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return stat.Flags&unix.ST_RDONLY != 0, nil
}

// knowsGroupOf reports whether the user namespace of a process has the group of a
// file (user_namespaces(7)): only then can it give a file to that group.
func knowsGroupOf(proc, file string) (group uint32, known bool, err error) {
	info, err := os.Lstat(file)
	if err != nil {
		return 0, false, err
	}
	stat, is := info.Sys().(*syscall.Stat_t)
	if !is {
		return 0, false, errors.ErrUnsupported
	}
	ids, err := os.ReadFile(filepath.Join(proc, "gid_map"))
	if err != nil {
		return 0, false, err
	}
	for line := range strings.Lines(string(ids)) {
		var inside, outside, count uint64
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err != nil {
			return 0, false, fmt.Errorf("%s: gid_map: %w", proc, err)
		}
		if gid := uint64(stat.Gid); gid >= outside && gid < outside+count {
			return stat.Gid, true, nil
		}
	}
	return stat.Gid, false, nil
}

// askWait bounds what the bus, or the port, is asked for.
const askWait = 10 * time.Second

// checkBus looks at the daemon's place on the system bus, and at what decides there.
func (n Node) checkBus(ctx context.Context, daemon *status.Status) []Finding {
	const check = "d-bus"
	const instead = "the command line works without it, but programs on the bus get no signals"
	ctx, cancel := context.WithTimeout(ctx, askWait)
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

// checkPort asks the port for Prometheus, and checks that the daemon answers.
func checkPort(ctx context.Context, address string, daemon *status.Status) Finding {
	const check = "metrics port"
	const ours = "image_update_agent_build_info"
	switch {
	case address == "":
		return skipped(check, "off (metrics.listen is empty); the status socket serves the metrics")
	case daemon == nil:
		return skipped(check, address+" not checked: the daemon is not running")
	}
	body, err := fetch(ctx, "http://"+address+"/metrics")
	switch {
	case err != nil:
		return warn(check, fmt.Sprintf("%s: %v", address, err),
			"run systemctl reload image-update-agent if metrics.listen is new; otherwise see journalctl -u image-update-agent")
	case !bytes.Contains(body, []byte(ours)):
		return warn(check, "another program answers at "+address,
			"find it with `ss -ltnp`, or change metrics.listen and run systemctl reload image-update-agent")
	default:
		return ok(check, address)
	}
}

// fetch reads the beginning of an answer, which is on this node.
func fetch(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{
		Transport: &http.Transport{DisableKeepAlives: true},
		// The daemon does not redirect.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	return io.ReadAll(io.LimitReader(resp.Body, 256<<10))
}

// checkHooks checks the hooks and their units, where hooks are configured.
func (n Node) checkHooks(ctx context.Context) []Finding {
	if !n.Hooks.Configured() {
		return []Finding{skipped("hooks", "none configured")}
	}
	var out []Finding
	if n.Hooks.SaltRefresh || n.Hooks.SaltEvent {
		if _, err := n.SaltCall.Check(); err != nil {
			out = append(out, warn("hooks", err.Error(), saltRemedy(n.Hooks)))
		}
	}
	if n.Hooks.Exec != "" {
		if _, err := n.HookProgram.Check(); err != nil {
			out = append(out, warn("hooks", err.Error(),
				"make root the owner of the program and of every directory and symlink in its path, "+
					"writable by no other user; or correct hooks.exec"))
		}
	}
	for _, h := range n.Webhooks {
		if err := h.Check(); err != nil {
			out = append(out, warn("hooks", err.Error(),
				"write the URL or the token as one line into a file that root owns, mode 0600; ca must be PEM (docs/hooks.md)"))
		}
	}
	if n.at(hook.UnitDir) != n.RuntimeDir {
		detail := fmt.Sprintf("%s watches /%s, not %s", systemd.HookPath, hook.UnitDir, n.RuntimeDir)
		out = append(out, warn("hooks", detail,
			"add a drop-in to the unit with PathExists= for the file hook.due in runtimeDir"))
	}
	if problem, found := n.checkHookUnits(ctx); found {
		out = append(out, problem)
	}
	if len(out) == 0 {
		out = append(out, ok("hooks", systemd.HookPath+" is active"))
	}
	return out
}

// saltRemedy names the settings that want salt-call.
func saltRemedy(h config.Hooks) string {
	const install = "install salt-minion on the node, or remove "
	switch {
	case !h.SaltRefresh:
		return install + "hooks.saltEvent"
	case h.SaltEvent:
		return install + "hooks.saltRefresh and hooks.saltEvent"
	}
	return install + "hooks.saltRefresh: the minion can also refresh its grains at an interval (docs/salt.md)"
}

// checkHookUnits asks for the state of the path unit and of the last run.
func (n Node) checkHookUnits(ctx context.Context) (Finding, bool) {
	path, err := systemd.Active(ctx, n.Bus, systemd.HookPath)
	switch {
	case err != nil:
		return warn("hooks", fmt.Sprintf("%s: %v", systemd.HookPath, err), "systemctl status "+systemd.HookPath), true
	case path == "failed":
		return warn("hooks", systemd.HookPath+" has failed: its service was started too often",
			"journalctl -u "+systemd.HookService+"; then run systemctl reset-failed and systemctl start "+systemd.HookPath), true
	case path != "active":
		return warn("hooks", fmt.Sprintf("%s is %s, so no hook runs", systemd.HookPath, path),
			"systemctl enable --now "+systemd.HookPath), true
	}
	service, err := systemd.Active(ctx, n.Bus, systemd.HookService)
	if err == nil && service == "failed" {
		return warn("hooks", "the last run of the hooks failed", "journalctl -u "+systemd.HookService), true
	}
	return Finding{}, false
}
