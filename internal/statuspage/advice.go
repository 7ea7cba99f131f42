// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/terminal"
)

// reason is why the node is in its state, and before that what runs and must not run any more. Where holds and sources
// are listed below, it is not said twice: then it is not whole.
func (p *page) reason() (text string, whole bool) {
	text, whole = p.stateReason()
	if whole {
		return text, whole
	}
	var lead []status.Reason
	for _, r := range p.s.Reasons {
		if r.Kind.MustNotRun() {
			lead = append(lead, r)
		}
	}
	if len(lead) > 0 {
		text = status.SentenceOf(lead) + "; " + text
	}
	return text, whole
}

func (p *page) stateReason() (text string, whole bool) {
	s := p.s
	held, awaits := holdBacks(s), s.HasReason(status.KindAwaited)
	switch {
	case len(held) == 0 && awaits:
		return "something newer is there, and is only waited for, see below", false
	case len(held) == 1 && !awaits:
		return held[0].Name + ": " + held[0].Reason + " (" + terminal.Few(held[0].of) + ")", false
	case len(held) > 1:
		return "there is something to do, and a reason not to: " + terminal.Plural(len(held), "hold") + ", see below", false
	case s.HasReason(status.KindSource):
		return fmt.Sprintf("what is known of %s is old: no answer, see below. What runs is not touched.",
			terminal.Plural(count(s, status.KindSource), "repository")), false
	default:
		return s.Reason, true
	}
}

func count(s status.Status, kind status.Kind) (n int) {
	for _, r := range s.Reasons {
		if r.Kind == kind {
			n++
		}
	}
	return n
}

// waitingFor is what waits for approval, where the head has not said it.
func (p *page) waitingFor() string {
	if _, whole := p.reason(); whole || p.s.State == status.StateStaged {
		return ""
	}
	var out []string
	for _, r := range p.s.Reasons {
		if r.Kind == status.KindApproval {
			out = append(out, r.PodManifest+" ("+r.Change+")")
		}
	}
	return strings.Join(out, ", ")
}

// advice is the next thing a person can do.
func (p *page) advice() string {
	text := p.firstAdvice()
	if p.away {
		return text
	}
	return text + alsoWaiting(p.s)
}

func (p *page) firstAdvice() string {
	s := p.s
	switch {
	case p.away:
		return "start the daemon (systemctl start image-update-agent): nothing is asked, staged or applied without it"
	case s.State == status.StateApplying && s.HasReason(status.KindDown):
		return "wait: kubelet starts what is new, which may take a pull; else journalctl -u kubelet"
	case s.State == status.StateFailed && s.HasReason(status.KindDown):
		return "kubelet tries again by itself; crictl ps -a and crictl logs, or journalctl -u kubelet, say what is wrong"
	case s.State == status.StateApplying:
		return "wait: it ends by itself, with a proof or with a rollback"
	case s.State == status.StateFailed:
		return failedAdvice(s)
	case s.State == status.StateHeld:
		return p.heldAdvice()
	case s.State == status.StateStale && s.HasReason(status.KindCatalog):
		return "the publisher has to refresh the catalog: image-catalog refresh; a person may apply all the same"
	case s.State == status.StateStale:
		return "bring the registry back; image-update-agent doctor says what is wrong on the way there"
	case s.State == status.StateStaged && slices.ContainsFunc(s.Reasons, isHeldBySource):
		return "bring the registry back (image-update-agent doctor says what is wrong on the way there), " +
			"then image-update-agent apply"
	case s.State == status.StateStaged:
		return "image-update-agent apply, when the pods may restart for some seconds"
	case s.HasReason(status.KindStarting):
		return "wait a moment: the daemon observes the node"
	case s.State == status.StateUnchecked && s.NextCheck == nil:
		return "image-update-agent check: polling is off, so nothing is asked before"
	case s.State == status.StateUnchecked:
		return "wait for the first poll, at " + p.Next(*s.NextCheck) + "; or now: image-update-agent check"
	default:
		return "nothing"
	}
}

// isHeldBySource reports whether the registry did not answer the last apply of what waits.
func isHeldBySource(r status.Reason) bool {
	return r.Kind == status.KindApproval && r.Held != "" && r.ErrorKind == status.ErrorSource
}

// alsoWaiting are the pod manifests that a person may apply, whatever else is to be done.
func alsoWaiting(s status.Status) string {
	var files []string
	for _, r := range s.Reasons {
		if r.Kind == status.KindApproval && s.State != status.StateStaged {
			files = append(files, r.PodManifest)
		}
	}
	if len(files) == 0 {
		return ""
	}
	return "; what waits can be applied all the same: image-update-agent apply " + strings.Join(files, " ")
}

// failedAdvice is for a node where something did not work. Only where all of it was
// rolled back there is no hurry.
func failedAdvice(s status.Status) string {
	var back []string
	failures := 0
	for _, r := range s.Reasons {
		if r.Kind != status.KindApproval && !r.Kind.MustNotRun() {
			failures++
		}
		switch r.Kind {
		case status.KindNotUp:
			return "the pod may be down: crictl ps -a, and crictl logs; when the cause is gone, " +
				"image-update-agent apply --retry " + r.PodManifest
		case status.KindLock:
			return "find out why the pod did not come up; the lock is given back when it is proved. " +
				"If the other nodes may go on: image-update-agent lock release"
		case status.KindUnlock:
			return "see the lock server's log; if it looks nodes up by Zincati's id, as poseidon's fleetlock does, set " +
				"apply.lock.id: zincati. It is tried again by itself, and at once by image-update-agent lock release; " +
				"else free the lock at the server"
		case status.KindCatalog:
			return "find out what the registry serves (image-catalog inspect, verify); what is verified stays in force. " +
				"If the older catalog is meant, image-update-agent catalog forget"
		case status.KindOwnHost:
			return "image-update-agent doctor says how containerd comes to ask the own host again"
		case status.KindTagNotFound:
			return "correct the tag in the pod manifest, or `follow` in the configuration"
		case status.KindRolledBack:
			back = append(back, r.PodManifest)
		default:
		}
	}
	switch {
	case failures == 0 && s.HasReason(status.KindWithdrawn):
		return "publish a release to run instead; or allow a lower one by catalog.allowLower"
	case failures == 0 && s.HasReason(status.KindDenied):
		return "roll it back (image-update-agent rollback), or allow it (image-update-agent apply --retry)"
	case len(back) == 0 || len(back) < failures:
		return "image-update-agent doctor; then journalctl -u image-update-agent"
	}
	return "no hurry: the pod runs what ran before. If the node was the cause, image-update-agent apply --retry " +
		strings.Join(back, " ") + "; if the image was, wait for a newer one"
}

func (p *page) heldAdvice() string {
	switch held := holdBacks(p.s); len(held) {
	case 0:
		if p.s.HasReason(status.KindAwaited) {
			return "see the remedy of what is waited for, below"
		}
		// The apply itself was held.
		return "when that is over, image-update-agent apply: the approval is used up"
	case 1:
		return held[0].Explained().Remedy
	default:
		return "see the remedy of each hold, below"
	}
}
