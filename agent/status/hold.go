// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"
)

// The names of holds. They are part of the machine interface; holdKinds explains each of them.
const (
	HoldUnresolved    = "unresolved"
	HoldBusy          = "busy"
	HoldRequested     = "hold"
	HoldFreeze        = "freeze"
	HoldRefused       = "refused"
	HoldDisk          = "disk"
	HoldUnmanaged     = "unmanaged"
	HoldDistribution  = "distribution"
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
	HoldSeverity      = "severity"
	HoldRecord        = "record"
)

// HoldKind is one row of the table of holds. All outputs use it: the status, the manual page (make tables), the
// metrics and the page in Cockpit.
type HoldKind struct {
	Name string
	// Summary describes the hold in one sentence, from its fields, and reports whether that is all, with its date; else
	// the reason has details. A field's value follows ": ", so that the page in Cockpit translates the text before it.
	Summary func(Hold) (text string, all bool)
	Meaning string // for people, in Markdown
	// OnlyAuto: it delays only automatic applies. A person may still apply.
	OnlyAuto bool
	// Remedy returns how to end the hold, from its fields. "; " separates its parts; a field's value follows ": " in a
	// part, so that the page in Cockpit translates the text before it.
	Remedy func(Hold) string
}

// HoldKinds returns the table of holds, those that also bind people first.
func HoldKinds() []HoldKind { return slices.Concat(holdsOfAll(), holdsOfAuto()) }

func holdsOfAll() []HoldKind { //nolint:funlen // a table
	return []HoldKind{
		{
			HoldUnresolved, unresolved,
			"the agent has no answer for an image of the pod, so it offers nothing for the pod", false,
			ask,
		},
		{
			HoldBusy, busy,
			"a grain says that the node is being updated, migrated or removed, or the agent cannot read the " +
				"grains", false,
			notBusy,
		},
		{
			HoldRequested, requested,
			"a person or the configuration holds the image", false,
			resume,
		},
		{
			HoldFreeze, whole("The configuration applies nothing before a date."),
			"the configuration applies nothing before a date (`apply.freeze`)", false,
			always("wait for the date; or change apply.freeze and reload"),
		},
		{
			HoldRefused, leads("A restart would pull a refused release of another image."),
			"the pod would restart, and kubelet would then pull a refused release for another of its " +
				"images", false,
			always("wait for another release, or change the rule that the plan shows: image-update-agent plan"),
		},
		{
			HoldDisk, leads("The image filesystem has too little space."),
			"the image filesystem has too little space for the pull", false,
			always("free space on the image filesystem; or lower disk.reserve or prune.keep"),
		},
		{
			HoldUnmanaged, leads("The agent may not change this pod manifest."),
			"the agent may not change the pod manifest: it has no template and is not listed under " +
				"`manage`, or it belongs to the control plane, or it is a symlink; the node is held by it only if no " +
				"other update waits for approval", false,
			always("nothing to do; to let the agent update it, list it under `manage` and run systemctl " +
				"reload image-update-agent"),
		},
		{
			HoldDistribution, leads("The Kubernetes distribution writes this pod manifest."),
			"the Kubernetes distribution writes the pod manifest at each start (the control plane of " +
				"RKE2), so the agent only shows what is newer; the node is not held by it", false,
			always("nothing to do: an upgrade of the distribution brings newer images"),
		},
		{
			HoldEdited, whole("Its template is gone, but the file was edited since the agent wrote it."),
			"the template of the pod manifest is gone, and the file was edited since the agent wrote it", false,
			always("remove the file, or list it under `manage`"),
		},
		{
			HoldDuplicate, leads("Another file defines the same pod."),
			"another file in kubelet's directory defines the same pod, or cannot be read and may define it; " +
				"kubelet runs the one that it read last", false,
			always("move all but one of the files out of kubelet's directory, or give them a leading dot"),
		},
		{
			HoldReboot, leads("A reboot is planned."),
			"a reboot or shutdown of the node is requested or scheduled", false,
			always("wait for the reboot; or cancel it with shutdown -c or rebootmgrctl cancel; or remove " +
				"/run/reboot-required or /run/reboot-needed"),
		},
		{
			HoldSnapshot, leads("The next boot uses another snapshot of the system."),
			"the next boot uses another snapshot of the system", false,
			always("reboot into the other snapshot; or run transactional-update rollback to keep the current one"),
		},
		{
			HoldKubelet, leads("kubelet is not ready."),
			"kubelet's unit is not active, or has been for less than a minute; or it is not known " +
				"which directory kubelet reads", false,
			always("wait a minute; if the hold stays, see systemctl status kubelet, repair the named file, or set podManifests"),
		},
		{
			HoldSet, leads("The other releases of its set cannot be applied yet."),
			"another image of the set is not staged, was withdrawn or waits, or not all pods of the set were " +
				"named", false,
			always("check what blocks the rest of the set: image-update-agent status"),
		},
		{
			HoldLock, leads("It waits for the fleet lock."),
			"another node has the fleet lock (`apply.lock`), or the lock does not answer; each apply " +
				"by hand asks again", false,
			always("wait for the holder; if it is gone for good, release its lock as lock show says; " +
				"to see the holder: image-update-agent lock show"),
		},
		{
			HoldQuorum, leads("The rest of the control plane is not known to be healthy."),
			"another member of etcd or another API server is not healthy or not known (`apply.quorum`); " +
				"each apply by hand asks again", false,
			always("repair the named member; or set apply.quorum to off if you check the control plane yourself"),
		},
	}
}

func holdsOfAuto() []HoldKind {
	return []HoldKind{
		{
			HoldWindow, whole("No maintenance window is open."),
			"no maintenance window is open (`apply.windows`)", true,
			always("wait for the window; or apply now: image-update-agent apply"),
		},
		{
			HoldControlPlane, leads("This part of the control plane waits for a person."),
			"etcd and kube-apiserver wait for a person unless the fleet has a lock; " +
				"kube-controller-manager and kube-scheduler do not get a newer minor version than kube-apiserver", true,
			always("apply node by node: image-update-agent apply"),
		},
		{
			HoldContradiction, leads("Tag and time of creation disagree on which release is newer."),
			"the release has a higher tag than the running one but was created earlier, or a lower " +
				"tag but was created later", true,
			always("if the release is the older one, `deny` its tag; or set `older` for the image if its creation times " +
				"mean nothing; or apply now: image-update-agent apply"),
		},
		{
			HoldFailed, leads("The release did not become healthy and could not be rolled back."),
			"the release did not become healthy and could not be rolled back", true,
			always("wait for a newer release; or, when the cause is fixed: image-update-agent apply --retry"),
		},
		{
			HoldCatalog, leads("The release catalog has expired."),
			"the release catalog has expired", true,
			always("the publisher must refresh the catalog (image-catalog refresh); or apply now: image-update-agent apply"),
		},
		{
			HoldRollout, rollout,
			"the rollout of the release has not reached this node yet", true,
			always("wait for this node's turn; or apply now: image-update-agent apply"),
		},
		{
			HoldSeverity, leads("The update is not severe enough to be applied automatically."),
			"the publisher gives the update a lower severity than `apply.minSeverity`, or none", true,
			always("lower apply.minSeverity, or remove it if nobody names a severity; or apply now: " +
				"image-update-agent apply; to see its packages: image-update-agent changes"),
		},
		{
			HoldRecord, leads("The record of the agent was lost."),
			"the record of the agent was lost, and with it the holds of people and what failed on this node", true,
			always("image-update-agent resume --all; then set the holds again that you need"),
		},
	}
}

func leads(text string) func(Hold) (string, bool) {
	return func(Hold) (string, bool) { return text, false }
}

func whole(text string) func(Hold) (string, bool) {
	return func(Hold) (string, bool) { return text, true }
}

func busy(h Hold) (string, bool) {
	if h.Grain == "" {
		return "The grains cannot be read.", false
	}
	return "Another operation works on the node. Its grain: " + h.Grain, false
}

func requested(h Hold) (string, bool) {
	switch {
	case h.Note != "":
		return h.Note, true
	case h.By == ByConfiguration:
		return "The configuration holds it.", true
	default:
		return "A person holds it.", true
	}
}

func rollout(h Hold) (string, bool) {
	if h.Until.IsZero() {
		return "The publisher has paused the rollout.", true
	}
	return "The rollout has not reached this node yet.", true
}

func always(text string) func(Hold) string { return func(Hold) string { return text } }

func notBusy(h Hold) string {
	if h.Grain == "" {
		return "repair the grains file: without it the agent cannot tell which operation owns the node"
	}
	return "wait until that operation ends; or, if it left its grain behind: salt-call --local grains.delkey " + h.Grain
}

func unresolved(h Hold) (string, bool) {
	if h.NotAsked {
		return "The source has not been asked yet.", false
	}
	return "The source does not answer for the image.", false
}

func ask(h Hold) string {
	if h.NotAsked {
		return "wait for the first check; or check now: image-update-agent check"
	}
	return "check why the registry does not answer: image-update-agent doctor"
}

func resume(h Hold) string {
	if h.By == ByConfiguration {
		return "remove its `hold` from the configuration and run systemctl reload image-update-agent"
	}
	cure := "image-update-agent resume " + path.Base(cmp.Or(h.Image, "IMAGE"))
	if h.Image == "*" {
		cure = "image-update-agent resume --all"
	}
	if !h.Until.IsZero() {
		cure += "; or wait until it ends"
	}
	return cure
}

// HoldsRollbacks reports whether the hold also ends a person's rollback as held.
func (k HoldKind) HoldsRollbacks() bool {
	return slices.Contains([]string{
		HoldBusy, HoldDuplicate, HoldReboot, HoldSnapshot, HoldKubelet, HoldSet, HoldLock, HoldQuorum,
	}, k.Name)
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
	Name   string `json:"name" dbus:"name"`     // HoldUnresolved ...
	Reason string `json:"reason" dbus:"reason"` // for people
	// OnlyAuto: it delays only automatic applies. See Explained.
	OnlyAuto bool   `json:"onlyAuto"`
	Remedy   string `json:"remedy"` // how to end it, for people. See Explained.
	// Summary is one sentence about it, and Details what only Reason says. See Explained.
	Summary string `json:"summary,omitempty"`
	Details string `json:"details,omitempty"`
	// Until is when it ends on its own; zero if unknown.
	Until time.Time `json:"until,omitzero" dbus:"until"`
	// Image is the repository of HoldRequested, HoldUnresolved, HoldRefused and HoldContradiction; "*": all of them.
	Image string `json:"image,omitempty"`
	// Note is what the person or the configuration gave as the reason of HoldRequested.
	Note string `json:"note,omitempty"`
	// By is who set HoldRequested: ByPerson or ByConfiguration.
	By string `json:"by,omitempty" dbus:"by"`
	// NotAsked: nothing was asked yet for the image of HoldUnresolved.
	NotAsked bool `json:"notAsked,omitempty"`
	// Grain is the grain of HoldBusy; empty if the grains could not be read.
	Grain string `json:"grain,omitempty"`
}

// IsUnmanaged reports whether the hold only means that the agent does not manage the pod manifest.
func (h Hold) IsUnmanaged() bool { return h.Name == HoldUnmanaged || h.Name == HoldDistribution }

// Explained returns the hold with the data of its row in the table. A remedy from a newer or older daemon stays.
func (h Hold) Explained() Hold {
	for _, kind := range HoldKinds() {
		if kind.Name == h.Name && h.Remedy == "" && h.Summary == "" {
			h.OnlyAuto, h.Remedy = h.OnlyAuto || kind.OnlyAuto, kind.Remedy(h)
			summary, isAll := kind.Summary(h)
			if h.Summary = summary; !isAll {
				h.Details = h.Reason
			}
		}
	}
	return h
}

// Explained returns the holds of one object with the data of the table, in one list; never nil. If a person may not
// apply either, no remedy names apply.
func Explained(lists ...[]Hold) []Hold {
	out := []Hold{}
	for _, h := range slices.Concat(lists...) {
		out = append(out, h.Explained())
	}
	if slices.ContainsFunc(out, Hold.BindsPeople) {
		for n := range out {
			parts := slices.DeleteFunc(strings.Split(out[n].Remedy, "; "), func(part string) bool {
				return strings.Contains(part, "image-update-agent apply")
			})
			out[n].Remedy = strings.Join(parts, "; ")
		}
	}
	return out
}

// BindsPeople reports whether a person may not apply either.
func (h Hold) BindsPeople() bool { return !h.Explained().OnlyAuto }

// AsReason returns the reason for the node's state, for a pod manifest or an image.
func (h Hold) AsReason(file, image string) Reason {
	return Reason{
		Kind: KindHold, PodManifest: file, Image: image, Hold: h.Name, Until: h.Until,
		Text: cmp.Or(file, image) + ": " + h.Name + ": " + h.Reason,
	}
}

// StandingHold is an active hold of a person or the configuration, with or without an offer.
type StandingHold struct {
	Repository string     `json:"repository" dbus:"repository"` // "*": all
	Name       string     `json:"name" dbus:"name"`             // HoldRequested or HoldFreeze
	Reason     string     `json:"reason" dbus:"reason"`
	Since      *time.Time `json:"since" dbus:"since"` // null if unknown
	Until      *time.Time `json:"until" dbus:"until"` // null: until a person or the configuration removes it
	By         Actor      `json:"by" dbus:",inline"`
	Remedy     string     `json:"remedy"`  // how to end it, for people
	Summary    string     `json:"summary"` // as of a Hold
}

// Explained returns the hold with its summary and remedy.
func (h StandingHold) Explained() StandingHold {
	as := Hold{Name: h.Name, Image: h.Repository, By: h.By.Kind}
	if h.Name == HoldRequested {
		as.Note = h.Reason
	}
	if h.Until != nil {
		as.Until = *h.Until
	}
	as = as.Explained()
	h.Summary, h.Remedy = as.Summary, cmp.Or(h.Remedy, as.Remedy)
	return h
}
