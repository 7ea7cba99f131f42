// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"

	"github.com/kubic-project/image-update-agent/internal/face/hook"
	"github.com/kubic-project/image-update-agent/internal/node/config"
	"github.com/kubic-project/image-update-agent/systemd"
)

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
				"a file of one line that root owns, mode 0600; ca is in PEM (docs/hooks.md)"))
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
