// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/reboot"
	"github.com/kubic-project/image-update-agent/systemd"
)

// cures are what ends each hold, in short; docs/operations.md has more.
func cures() map[string]string {
	return map[string]string{
		agent.HoldWithheld: "the registry has to answer for all its images: image-update-agent doctor",
		agent.HoldBusy:     "wait for that operation; or, if it has left its grain: salt-call --local grains.delkey NAME",
		agent.HoldAsked:    "image-update-agent unhold IMAGE; or wait for its end",
		agent.HoldFreeze:   "wait for the date; or another apply.freeze and a reload",
		agent.HoldRefused:  "another release, or another rule: image-update-agent plan names it",
		agent.HoldDisk:     "make room where the images are; or a smaller disk.reserve or prune.keep",
		agent.HoldUnmanaged: "none is needed; to have it applied list it under `manage`, " +
			"and systemctl reload image-update-agent",
		agent.HoldEdited:       "remove the file, or list it under `manage`",
		agent.HoldWindow:       "wait for the window; or by hand, at any time: image-update-agent apply",
		agent.HoldControlPlane: "a person, node by node: image-update-agent apply",
		agent.HoldFailed:       "wait for a newer release; or image-update-agent apply --retry when the cause is gone",
		reboot.HoldReboot:      "wait for the reboot; or shutdown -c, rebootmgrctl cancel",
		reboot.HoldSnapshot:    "reboot into the other snapshot",
		systemd.HoldKubelet:    "wait a minute; else systemctl status kubelet",
	}
}

// Holds are the names of all holds there are, sorted.
func Holds() []string { return slices.Sorted(maps.Keys(cures())) }

// Remedy is what ends a hold, with the names that its reason has.
func Remedy(h agent.Hold) string {
	switch h.Name {
	case agent.HoldBusy:
		grain, _, found := strings.Cut(strings.TrimPrefix(h.Reason, "the grain "), " is true")
		if !found {
			return "repair the file: without it nobody can tell who owns the node"
		}
		return strings.Replace(cures()[h.Name], "NAME", grain, 1)
	case agent.HoldAsked:
		return remedyForAsked(h)
	default:
		return cures()[h.Name]
	}
}

// remedyForAsked names what somebody wants held, which its reason begins with.
func remedyForAsked(h agent.Hold) string {
	cure := cures()[agent.HoldAsked]
	if h.Until.IsZero() {
		cure, _, _ = strings.Cut(cure, ";")
	}
	if strings.Contains(h.Reason, "(configuration)") {
		return "take its `hold` out of the configuration, and systemctl reload image-update-agent"
	}
	of, _, _ := strings.Cut(h.Reason, " ")
	of = strings.TrimRight(of, ":,")
	if of == "everything" {
		return strings.Replace(cure, "IMAGE", "--all", 1)
	}
	return strings.Replace(cure, "IMAGE", path.Base(of), 1)
}
