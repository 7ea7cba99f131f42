// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/terminal"
)

// reason is why the node is in its state. Where holds and sources are listed below,
// it is not said twice.
func (p *page) reason() string {
	s := p.s
	held, silent := holdBacks(s), silentSources(s.Sources)
	switch {
	case s.State == agent.StateHeld && len(held) == 0 && isWaiting(s):
		return "something newer is there, and is only waited for, see below"
	case s.State == agent.StateHeld && len(held) == 1 && !isWaiting(s):
		return held[0].Name + ": " + held[0].Reason + " (" + terminal.Few(held[0].of) + ")"
	case s.State == agent.StateHeld && len(held) > 1:
		return "there is something to do, and a reason not to: " + terminal.Plural(len(held), "hold") + ", see below"
	case s.State == agent.StateStale && silent > 0:
		return fmt.Sprintf("what is known of %s is old: no answer, see below. What runs is not touched.",
			terminal.Plural(silent, "repository"))
	default:
		return s.Reason
	}
}

// advice is the next thing a person can do.
func (p *page) advice() string {
	s := p.s
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
	case s.Reason == Starting:
		return "wait a moment: the node is being looked at"
	case s.State == agent.StateUnchecked && s.NextCheck == nil:
		return "image-update-agent check: polling is off, so nothing is asked before"
	case s.State == agent.StateUnchecked:
		return "wait for the first poll, at " + p.Next(*s.NextCheck) + "; or now: image-update-agent check"
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
		return Remedy(held[0].Hold)
	default:
		return "see the remedy of each hold, below"
	}
}
