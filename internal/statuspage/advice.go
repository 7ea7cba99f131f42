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
		return "a newer release exists but cannot be offered yet, see below", false
	case len(held) == 1 && !awaits:
		return held[0].Name + ": " + held[0].Reason + " (" + terminal.Few(held[0].of) + ")", false
	case len(held) > 1:
		return "updates are available but blocked by " + terminal.Plural(len(held), "hold") + ", see below", false
	case s.HasReason(status.KindSource):
		return fmt.Sprintf("the registry did not answer for %s, so its offers are old, see below; running "+
			"pods are not affected",
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
		return "start the daemon (systemctl start image-update-agent): without it, nothing is checked, staged or applied"
	case s.State == status.StateApplying && s.HasReason(status.KindDown):
		return "wait: kubelet is starting the container and may have to pull its image; see journalctl -u kubelet"
	case s.State == status.StateFailed && s.HasReason(status.KindDown):
		return "kubelet tries again by itself; find the cause with crictl ps -a, crictl logs and journalctl -u kubelet"
	case s.State == status.StateApplying:
		return "wait: the apply ends with a health check or a rollback"
	case s.State == status.StateFailed:
		return failedAdvice(s)
	case s.State == status.StateHeld:
		return p.heldAdvice()
	case s.State == status.StateStale && s.HasReason(status.KindCatalog):
		return "the publisher must refresh the catalog (image-catalog refresh); you can still apply by hand"
	case s.State == status.StateStale:
		return "restore the connection to the registry; image-update-agent doctor shows the cause"
	case s.State == status.StateStaged && slices.ContainsFunc(s.Reasons, isHeldBySource):
		return "restore the connection to the registry (image-update-agent doctor shows the cause), " +
			"then run image-update-agent apply"
	case s.State == status.StateStaged:
		return "run image-update-agent apply when the pods may restart for a few seconds"
	case s.HasReason(status.KindStarting):
		return "wait a moment: the daemon is checking the node"
	case s.State == status.StateUnchecked && s.NextCheck == nil:
		return "run image-update-agent check: polling is off"
	case s.State == status.StateUnchecked:
		return "wait for the first check at " + p.Next(*s.NextCheck) + ", or run image-update-agent check now"
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
	return "; you can still apply the other updates: image-update-agent apply " + strings.Join(files, " ")
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
			return "the pod may be down: see crictl ps -a and crictl logs; when the cause is fixed, run " +
				"image-update-agent apply --retry " + r.PodManifest
		case status.KindLock:
			return "find out why the pod did not become healthy; the agent releases the lock once it is healthy. " +
				"To let the other nodes continue now: image-update-agent lock release"
		case status.KindUnlock:
			if s.Lock != nil && s.Lock.Server == "" {
				return "the agent tries again by itself, or at once with image-update-agent lock release; " +
					"image-update-agent doctor shows whether it may change the lock"
			}
			return "see the log of the lock server; if it identifies nodes by Zincati's id, as poseidon's fleetlock does, set " +
				"apply.lock.id: zincati. The agent tries again by itself, or at once with image-update-agent lock release; " +
				"otherwise release the lock on the server"
		case status.KindCatalog:
			return "inspect the catalog of the registry (image-catalog inspect, image-catalog verify); the " +
				"verified one stays in " +
				"effect. To accept the older catalog: image-update-agent catalog forget"
		case status.KindLocalRegistry:
			return "run image-update-agent doctor: it shows how to make containerd use the local registry again"
		case status.KindTagNotFound:
			return "correct the tag in the pod manifest, or `follow` in the configuration"
		case status.KindRolledBack:
			back = append(back, r.PodManifest)
		default:
		}
	}
	switch {
	case failures == 0 && s.HasReason(status.KindWithdrawn):
		return "publish a replacement, or allow a lower release with catalog.allowLower"
	case failures == 0 && s.HasReason(status.KindDenied):
		return "roll it back (image-update-agent rollback), or allow it (image-update-agent apply --retry)"
	case len(back) == 0 || len(back) < failures:
		return "run image-update-agent doctor, then see journalctl -u image-update-agent"
	}
	return "no hurry: the pod is running the previous release. If the node was the cause, run " +
		"image-update-agent apply --retry " +
		strings.Join(back, " ") + "; if the image was the cause, wait for a newer one"
}

func (p *page) heldAdvice() string {
	switch held := holdBacks(p.s); len(held) {
	case 0:
		if p.s.HasReason(status.KindAwaited) {
			return "see the remedy for the newer release below"
		}
		// The apply itself was held.
		return "when the hold has ended, run image-update-agent apply again"
	case 1:
		return held[0].Explained().Remedy
	default:
		return "see the remedy for each hold below"
	}
}
