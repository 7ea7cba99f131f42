// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"
	"maps"
	"path"
	"slices"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/reboot"
	"github.com/kubic-project/image-update-agent/systemd"
)

// cures are what ends each hold, in short, for one; docs/operations.md has more.
func cures(h status.Hold) map[string]string {
	return map[string]string{
		status.HoldWithheld:  "the registry has to answer for all its images: image-update-agent doctor",
		status.HoldBusy:      notBusy(h),
		status.HoldRequested: unhold(h),
		status.HoldFreeze:    "wait for the date; or another apply.freeze and a reload",
		status.HoldRefused:   "another release, or another rule: image-update-agent plan names it",
		status.HoldSet:       "the rest of the set has to be staged: image-update-agent status says what is missing",
		status.HoldLock: "wait for the holder; if it is gone for good, its lock has to be released at the lock server: " +
			"image-update-agent lock show",
		status.HoldQuorum: "mend the member that is named; or apply.quorum: off, where a person makes sure of the rest",
		status.HoldCatalog: "the publisher has to refresh the catalog (image-catalog refresh); " +
			"or by hand: image-update-agent apply",
		status.HoldRollout: "wait for this node's time; or by hand, at any time: image-update-agent apply",
		status.HoldDisk:    "make space where the images are; or a smaller disk.reserve or prune.keep",
		status.HoldUnmanaged: "none is needed; to have it applied list it under `manage`, " +
			"and systemctl reload image-update-agent",
		status.HoldEdited:       "remove the file, or list it under `manage`",
		status.HoldWindow:       "wait for the window; or by hand, at any time: image-update-agent apply",
		status.HoldControlPlane: "a person, node by node: image-update-agent apply",
		status.HoldFailed:       "wait for a newer release; or image-update-agent apply --retry when the cause is gone",
		reboot.HoldReboot:       "wait for the reboot; or shutdown -c, rebootmgrctl cancel",
		reboot.HoldSnapshot:     "reboot into the other snapshot",
		systemd.HoldKubelet:     "wait a minute; else systemctl status kubelet",
	}
}

// Holds are the names of all holds there are, sorted.
func Holds() []string { return slices.Sorted(maps.Keys(cures(status.Hold{}))) }

// Remedy is what ends a hold.
func Remedy(h status.Hold) string { return cures(h)[h.Name] }

func notBusy(h status.Hold) string {
	if h.Grain == "" {
		return "repair the file: without it nobody can tell who owns the node"
	}
	return "wait for that operation; or, if it has left its grain: salt-call --local grains.delkey " + h.Grain
}

func unhold(h status.Hold) string {
	if h.By == status.ByConfiguration {
		return "take its `hold` out of the configuration, and systemctl reload image-update-agent"
	}
	cure := "image-update-agent unhold " + path.Base(cmp.Or(h.Image, "IMAGE"))
	if h.Image == agent.All {
		cure = "image-update-agent unhold --all"
	}
	if !h.Until.IsZero() {
		cure += "; or wait for its end"
	}
	return cure
}
