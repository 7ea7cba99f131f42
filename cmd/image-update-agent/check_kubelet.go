// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/config"
	"github.com/kubic-project/image-update-agent/internal/terminal"
	"github.com/kubic-project/image-update-agent/systemd"
)

// checkKubelet tells whether kubelet runs, and reads the directory that the agent
// writes.
func (s settings) checkKubelet(ctx context.Context) []finding {
	const check = "kubelet"
	var out []finding
	reads := config.StaticPodPath(s.below())
	if reads != "" && reads != s.PodManifests {
		out = append(out, fail(check, fmt.Errorf("it reads %s, and podManifests is %s", reads, s.PodManifests),
			"take podManifests out of the configuration: without it kubelet's own is used"))
	}
	for _, h := range (systemd.Kubelet{Bus: s.systemBus()}).Holds(ctx) {
		out = append(out, warn(check, h.Reason, "systemctl status kubelet; nothing is applied meanwhile"))
	}
	if len(out) == 0 && reads == "" && !(systemd.Kubelet{Bus: s.systemBus()}).Exists(ctx) {
		return []finding{warn(check, "none is found: there is neither kubelet.service nor a configuration of kubelet",
			"install kubelet: the agent writes pod manifests, and kubelet runs them; one that is run by other means "+
				"works as well")}
	}
	if len(out) == 0 {
		out = append(out, ok(check, cmp.Or(reads, "its configuration names no directory: podManifests is "+s.PodManifests)))
	}
	return out
}

// checkAppArmor tells whether a profile confines the daemon: the package has none,
// and one that somebody has made knows nothing of the next version.
func (s settings) checkAppArmor(ctx context.Context) finding {
	const check = "apparmor"
	enabled, err := os.ReadFile(filepath.Join(s.root, "sys/module/apparmor/parameters/enabled"))
	if err != nil || strings.TrimSpace(string(enabled)) != "Y" {
		return ok(check, "not in use")
	}
	daemon, err := peerOf(ctx, s.socket("agent.sock"))
	if err != nil {
		return ok(check, "in use; no daemon to look at")
	}
	label, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(daemon.pid), "attr/current"))
	if err != nil {
		return ok(check, "in use; the daemon's profile cannot be read")
	}
	return profileFinding(strings.TrimRight(string(label), "\x00\n"))
}

func profileFinding(label string) finding {
	const check = "apparmor"
	if label == "" || label == "unconfined" {
		return ok(check, "the daemon is not confined by a profile")
	}
	return advise(check, "a profile confines the daemon that the package does not have: "+terminal.Quoted(label),
		"journalctl -k --grep=apparmor.*DENIED shows what it denies")
}
