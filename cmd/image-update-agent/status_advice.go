// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/reboot"
	"github.com/kubic-project/image-update-agent/systemd"
)

// starting is the reason of a daemon that has not looked at the node yet.
const starting = "starting"

// reason is why the node is in its state. Where holds and sources are listed below,
// it is not said twice.
func (p *page) reason(s agent.Status) string {
	held, silent := holdBacks(s), silentSources(s.Sources)
	switch {
	case s.State == agent.StateHeld && len(held) == 0 && isWaiting(s):
		return "something newer is there, and is only waited for, see below"
	case s.State == agent.StateHeld && len(held) == 1 && !isWaiting(s):
		return held[0].Name + ": " + held[0].Reason + " (" + few(held[0].of) + ")"
	case s.State == agent.StateHeld && len(held) > 1:
		return "there is something to do, and a reason not to: " + plural(len(held), "hold") + ", see below"
	case s.State == agent.StateStale && silent > 0:
		return fmt.Sprintf("what is known of %s is old: no answer, see below. What runs is not touched.",
			plural(silent, "repository"))
	default:
		return s.Reason
	}
}

// advice is the next thing a person can do.
func (p *page) advice(s agent.Status) string {
	switch {
	case p.away:
		return "start the daemon (systemctl start image-update-agent): nothing is asked, staged or applied without it"
	case s.State == agent.StateApplying && anyDown(s.Images):
		return "wait: kubelet starts what is new, which may take a pull; else journalctl -u kubelet"
	case s.State == agent.StateFailed && anyDown(s.Images):
		return "kubelet tries again by itself; crictl ps -a and crictl logs, or journalctl -u kubelet, say what is wrong"
	case s.State == agent.StateApplying:
		return "wait: it ends by itself, with a proof or with a rollback"
	case s.State == agent.StateFailed:
		return failedAdvice(s)
	case s.State == agent.StateHeld:
		return heldAdvice(s)
	case s.State == agent.StateStale:
		return "bring the registry back; image-update-agent doctor says what is wrong on the way there"
	case s.State == agent.StateStaged:
		return "image-update-agent apply, when the pods may restart for some seconds"
	case s.Reason == starting:
		return "wait a moment: the node is being looked at"
	case s.State == agent.StateUnchecked && s.NextCheck == nil:
		return "image-update-agent check: polling is off, so nothing is asked before"
	case s.State == agent.StateUnchecked:
		return "wait for the first poll, at " + p.at(*s.NextCheck) + "; or now: image-update-agent check"
	default:
		return "nothing"
	}
}

func anyDown(images []agent.ImageStatus) bool {
	return slices.ContainsFunc(images, func(i agent.ImageStatus) bool { return i.Down != nil })
}

// parts splits the reason of a failed node where another pod manifest, or another
// part of the agent, begins.
var parts = regexp.MustCompile(`; (\S+: )`)

// failedAdvice is for a node where something did not work. Only where all of it was
// rolled back there is no hurry.
func failedAdvice(s agent.Status) string {
	var back []string
	all := strings.Split(parts.ReplaceAllString(s.Reason, "\n$1"), "\n")
	for _, part := range all {
		file, text, _ := strings.Cut(part, ": ")
		switch {
		case strings.Contains(text, "; it stays as it is"):
			return "the pod may be down: crictl ps -a, and crictl logs; when the cause is gone, " +
				"image-update-agent apply --retry " + file
		case strings.Contains(text, " was rolled back: "), strings.Contains(text, "; rolled back to "):
			back = append(back, file)
		}
	}
	if len(back) < len(all) {
		return "image-update-agent doctor; then journalctl -u image-update-agent"
	}
	return "no hurry: the pod runs what ran before. If the node was the cause, image-update-agent apply --retry " +
		strings.Join(back, " ") + "; if the image was, wait for a newer one"
}

func heldAdvice(s agent.Status) string {
	switch held := holdBacks(s); len(held) {
	case 0:
		if isWaiting(s) {
			return "see the remedy of what is waited for, below"
		}
		// The apply itself was held.
		return "when that is over, image-update-agent apply: the yes of before is used up"
	case 1:
		return remedyFor(held[0].Hold)
	default:
		return "see the remedy of each hold, below"
	}
}

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

// remedyFor is a hold's cure, with the names that its reason has.
func remedyFor(h agent.Hold) string {
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

// maxNames is how many are named of those that are alike.
const maxNames = 3

// few names the first, and counts the others.
func few(names []string) string {
	text := strings.Join(names[:min(len(names), maxNames)], ", ")
	if more := len(names) - maxNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
