// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"

	"github.com/kubic-project/image-update-agent/internal/hook"
	"github.com/kubic-project/image-update-agent/systemd"
)

// checkHooks checks the hooks and their units, where hooks are configured.
func (n Node) checkHooks(ctx context.Context) []Finding {
	if !n.Hooks.Configured() {
		return []Finding{skipped("hooks", "none is configured")}
	}
	var out []Finding
	if n.Hooks.SaltRefresh || n.Hooks.SaltEvent {
		if _, err := n.SaltCall.Check(); err != nil {
			out = append(out, warn("hooks", err.Error(),
				"install salt-minion on the node itself, or take hooks.saltRefresh out: "+
					"the minion can look at its grains every so many minutes, too (docs/salt.md)"))
		}
	}
	if n.Hooks.Exec != "" {
		if _, err := n.HookProgram.Check(); err != nil {
			out = append(out, warn("hooks", err.Error(),
				"the program, and each directory and symlink on the way to it: "+
					"root's, writable by no other user; or correct hooks.exec"))
		}
	}
	if n.at(hook.UnitDir) != n.RuntimeDir {
		detail := fmt.Sprintf("%s looks in /%s, not in %s", systemd.HookPath, hook.UnitDir, n.RuntimeDir)
		out = append(out, warn("hooks", detail,
			"a drop-in of the unit, with PathExists= of hook.due in runtimeDir, if there is none yet"))
	}
	if problem, found := n.checkHookUnits(ctx); found {
		out = append(out, problem)
	}
	if len(out) == 0 {
		out = append(out, ok("hooks", systemd.HookPath+" is active"))
	}
	return out
}

// checkHookUnits asks for the state of the path unit and of the last run.
func (n Node) checkHookUnits(ctx context.Context) (Finding, bool) {
	path, err := systemd.Active(ctx, n.Bus, systemd.HookPath)
	switch {
	case err != nil:
		return warn("hooks", fmt.Sprintf("%s: %v", systemd.HookPath, err), "systemctl status "+systemd.HookPath), true
	case path == "failed":
		return warn("hooks", systemd.HookPath+" has given up: its service was started again and again",
			"journalctl -u "+systemd.HookService+"; then systemctl reset-failed and systemctl start "+systemd.HookPath), true
	case path != "active":
		return warn("hooks", fmt.Sprintf("%s is %s: nothing is run", systemd.HookPath, path),
			"systemctl enable --now "+systemd.HookPath), true
	}
	service, err := systemd.Active(ctx, n.Bus, systemd.HookService)
	if err == nil && service == "failed" {
		return warn("hooks", "the last one did not end well", "journalctl -u "+systemd.HookService), true
	}
	return Finding{}, false
}
