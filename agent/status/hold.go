// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"path"
	"slices"
	"time"
)

// The names of holds. They are part of the machine interface; holdKinds has what each of them means.
const (
	HoldWithheld      = "withheld"
	HoldBusy          = "busy"
	HoldRequested     = "hold"
	HoldFreeze        = "freeze"
	HoldRefused       = "refused"
	HoldDisk          = "disk"
	HoldUnmanaged     = "unmanaged"
	HoldEdited        = "edited"
	HoldDuplicate     = "duplicate"
	HoldReboot        = "reboot"
	HoldSnapshot      = "snapshot"
	HoldKubelet       = "kubelet"
	HoldSet           = "set"
	HoldLock          = "lock"
	HoldQuorum        = "quorum"
	HoldWindow        = "window"
	HoldControlPlane  = "control-plane"
	HoldContradiction = "contradiction"
	HoldFailed        = "failed"
	HoldCatalog       = "catalog"
	HoldRollout       = "rollout"
)

// HoldKind is one row of the table of holds. Every face reads it: the status, the manual page, docs/operations.md
// (make holds), the metrics and the page in Cockpit.
type HoldKind struct {
	Name    string
	Meaning string // for people, in Markdown
	// OnlyAuto: only automatic applies wait for it. A person may apply.
	OnlyAuto bool
	// Remedy returns what ends the hold, from its fields. "; " divides its parts; a value of a field stands in a part
	// behind ": ", so that the page in Cockpit translates what is before it.
	Remedy func(Hold) string
}

// HoldKinds is the table of holds, those that bind everybody first.
func HoldKinds() []HoldKind { return slices.Concat(holdsOfAll(), holdsOfAuto()) }

func holdsOfAll() []HoldKind { //nolint:funlen // a table
	return []HoldKind{
		{
			HoldWithheld, "an image of the pod is unresolved, so nothing of the pod is offered", false,
			always("the registry has to answer for all its images: image-update-agent doctor"),
		},
		{
			HoldBusy, "a grain says that the node is updated, migrated or removed, or the grains cannot be read", false,
			notBusy,
		},
		{HoldRequested, "a person or the configuration holds the image", false, unhold},
		{
			HoldFreeze, "the configuration applies nothing before a date (`apply.freeze`), not even by hand", false,
			always("wait for the date; or another apply.freeze and a reload"),
		},
		{
			HoldRefused, "the pod would restart, and kubelet would pull what a rule refuses for another of its images", false,
			always("another release, or another rule: image-update-agent plan names it"),
		},
		{
			HoldDisk, "the image file system has too little space for the pull; the reason has the figures", false,
			always("make space where the images are; or a smaller disk.reserve or prune.keep"),
		},
		{
			HoldUnmanaged, "the pod manifest has no template, is the control plane's, or must not be written, as a " +
				"symlink; the node is held by it only where something newer is staged for it and nothing else waits for " +
				"approval", false,
			always("none is needed; to have it applied list it under `manage`, and systemctl reload image-update-agent"),
		},
		{
			HoldEdited, "the pod manifest has no template any more, and was edited since the agent wrote it", false,
			always("remove the file, or list it under `manage`"),
		},
		{
			HoldDuplicate, "another file of kubelet's directory defines the same pod, or cannot be read and may define it; " +
				"kubelet reads every file without a leading dot, and runs the one that it read last, so neither is written, " +
				"applied or rolled back", false,
			always("move all but one of the files out of kubelet's directory, or give them a leading dot"),
		},
		{
			HoldReboot, "a reboot or shutdown of the node is requested or scheduled", false,
			always("wait for the reboot; or shutdown -c, rebootmgrctl cancel; or remove /run/reboot-required, " +
				"/run/reboot-needed"),
		},
		{
			HoldSnapshot, "the next boot is into another snapshot of the system", false,
			always("reboot into the other snapshot; or transactional-update rollback to the running one"),
		},
		{
			HoldKubelet, "kubelet's unit is not active, or for less than a minute", false,
			always("wait a minute; else systemctl status kubelet"),
		},
		{
			HoldSet, "another image of the same set is not staged, was withdrawn, or waits; or not all pods of the set " +
				"were named",
			false, always("all of the set has to be ready: image-update-agent status says what holds it"),
		},
	}
}

func holdsOfAuto() []HoldKind {
	return []HoldKind{
		{
			HoldLock, "another node has the lock of the fleet (`apply.lock`), or its server does not answer; an apply by " +
				"hand asks for it anew, and is held where it does not get it", true,
			always("wait for the holder; if it is gone for good, its lock has to be released at the lock server: " +
				"image-update-agent lock show"),
		},
		{
			HoldQuorum, "another member of etcd, or another API server, is not healthy or not known (`apply.quorum`); an " +
				"apply by hand asks them anew, and is held where that is still so", true,
			always("mend the member that is named; or turn apply.quorum off, where a person makes sure of the rest"),
		},
		{
			HoldWindow, "no maintenance window is open (`apply.windows`)", true,
			always("wait for the window; or by hand, at any time: image-update-agent apply"),
		},
		{
			HoldControlPlane, "without a lock of the fleet, etcd and kube-apiserver are for a person, node by node; and " +
				"what must not be newer waits for kube-apiserver", true,
			always("a person, node by node: image-update-agent apply"),
		},
		{
			HoldContradiction, "the release has a higher tag than what runs and was created earlier, or a lower one and " +
				"later; times before Docker, as 1970 or 1980 of reproducible builds, say nothing, and an image of a release " +
				"catalog does not wait", true,
			always("a person decides which one is newer: image-update-agent apply; or `deny` for the tag; or `older` for " +
				"the image, where its times say nothing"),
		},
		{
			HoldFailed, "it was tried, did not come up, and could not be rolled back", true,
			always("wait for a newer release; or image-update-agent apply --retry when the cause is gone"),
		},
		{
			HoldCatalog, "the release catalog has expired", true,
			always("the publisher has to refresh the catalog (image-catalog refresh); or by hand: image-update-agent apply"),
		},
		{
			HoldRollout, "this node's time in the release's rollout has not come", true,
			always("wait for this node's time; or by hand, at any time: image-update-agent apply"),
		},
	}
}

func always(text string) func(Hold) string { return func(Hold) string { return text } }

func notBusy(h Hold) string {
	if h.Grain == "" {
		return "repair the file: without it the agent cannot tell which operation owns the node"
	}
	return "wait for that operation; or, if it has left its grain: salt-call --local grains.delkey " + h.Grain
}

func unhold(h Hold) string {
	if h.By == ByConfiguration {
		return "take its `hold` out of the configuration, and systemctl reload image-update-agent"
	}
	cure := "image-update-agent unhold " + path.Base(cmp.Or(h.Image, "IMAGE"))
	if h.Image == "*" {
		cure = "image-update-agent unhold --all"
	}
	if !h.Until.IsZero() {
		cure += "; or wait for its end"
	}
	return cure
}

// HoldNames returns the names of all holds.
func HoldNames() []string {
	var names []string
	for _, kind := range HoldKinds() {
		names = append(names, kind.Name)
	}
	return names
}

// Hold is a named reason not to apply now.
type Hold struct {
	Name   string `json:"name" dbus:"name"`     // HoldWithheld ...
	Reason string `json:"reason" dbus:"reason"` // for people
	// OnlyAuto: only automatic applies wait for it. See Explained.
	OnlyAuto bool   `json:"onlyAuto"`
	Remedy   string `json:"remedy"` // what ends it, for people. See Explained.
	// Until is when it ends by itself; zero: not known.
	Until time.Time `json:"until,omitzero" dbus:"until"`
	// Image is the repository that HoldRequested, HoldWithheld, HoldRefused and HoldContradiction are about; "*": all
	// of them.
	Image string `json:"image,omitempty"`
	// By is who set HoldRequested: ByPerson or ByConfiguration.
	By string `json:"by,omitempty" dbus:"by"`
	// Grain is the grain of HoldBusy; empty: the grains could not be read.
	Grain string `json:"grain,omitempty"`
}

// Explained returns the hold with what its row of the table says. A remedy that a newer or older daemon gave stays.
func (h Hold) Explained() Hold {
	for _, kind := range HoldKinds() {
		if kind.Name == h.Name && h.Remedy == "" {
			h.OnlyAuto, h.Remedy = h.OnlyAuto || kind.OnlyAuto, kind.Remedy(h)
		}
	}
	return h
}

// Explained returns holds with what the table says about them, in one list; never nil.
func Explained(lists ...[]Hold) []Hold {
	out := []Hold{}
	for _, h := range slices.Concat(lists...) {
		out = append(out, h.Explained())
	}
	return out
}

// AsReason returns the reason for the node's state, for a pod manifest or an image.
func (h Hold) AsReason(file, image string) Reason {
	return Reason{
		Kind: KindHold, PodManifest: file, Image: image, Hold: h.Name, Until: h.Until,
		Text: cmp.Or(file, image) + ": " + h.Name + ": " + h.Reason,
	}
}
