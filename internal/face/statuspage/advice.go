// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
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
		return fmt.Sprintf("the registry did not answer for %s, so its offers may be out of date (see below); running "+
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
		return p.startAdvice()
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
		return "the publisher must refresh the catalog (image-catalog refresh)"
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
		if r.Kind == status.KindApproval && s.State != status.StateStaged && canApply(s, r) {
			files = append(files, r.PodManifest)
		}
	}
	if len(files) == 0 {
		return ""
	}
	return "; you can still apply the other updates: image-update-agent apply " + strings.Join(files, " ")
}

// canApply reports whether nothing speaks against an apply of what waits: no other reason is about its pod, its last
// apply was not held, and the sources of its images answer.
func canApply(s status.Status, waits status.Reason) bool {
	return waits.Held == "" && !isBound(s, waits.PodManifest) &&
		!slices.ContainsFunc(s.Reasons, func(r status.Reason) bool {
			return r.Kind != status.KindApproval && r.PodManifest == waits.PodManifest
		}) &&
		!slices.ContainsFunc(imagesOf(s, waits.PodManifest), func(i status.ImageStatus) bool {
			return slices.ContainsFunc(s.Sources, func(r status.SourceStatus) bool {
				return r.Repository == i.Image && r.Failures > 0
			})
		})
}

// canRetry reports whether apply --retry applies the release that failed: nothing holds its pod, and the source still
// offers it.
func canRetry(s status.Status, file string) bool {
	return !isBound(s, file) && slices.ContainsFunc(imagesOf(s, file), func(i status.ImageStatus) bool {
		return i.Offered != nil ||
			slices.ContainsFunc(i.Refused, func(r policy.Refusal) bool { return r.Rule == policy.RuleFailed })
	})
}

// isBound reports whether a hold of a pod also binds people, or one will as soon as there is something to apply.
func isBound(s status.Status, file string) bool {
	images := imagesOf(s, file)
	return slices.ContainsFunc(s.PodManifests, func(p status.PodStatus) bool {
		return p.PodManifest == file && slices.ContainsFunc(p.Holds, status.Hold.BindsPeople)
	}) || slices.ContainsFunc(s.StandingHolds, func(h status.StandingHold) bool {
		return h.Repository == record.AllImages ||
			slices.ContainsFunc(images, func(i status.ImageStatus) bool { return i.Image == h.Repository })
	})
}

func imagesOf(s status.Status, file string) []status.ImageStatus {
	return slices.DeleteFunc(slices.Clone(s.Images), func(i status.ImageStatus) bool { return i.PodManifest != file })
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
		if text := adviceFor(s, r); text != "" {
			return text
		}
		if r.Kind == status.KindRolledBack {
			back = append(back, r.PodManifest)
		}
	}
	switch {
	case failures == 0 && s.HasReason(status.KindWithdrawn):
		return "publish a replacement, or allow a lower release with catalog.allowLower"
	case failures == 0 && s.HasReason(status.KindDenied):
		return deniedAdvice(s)
	case len(back) == 0 || len(back) < failures:
		return "remove the cause, then run image-update-agent check; journalctl -u image-update-agent has more"
	}
	const text = "no hurry: the pod is running the previous release"
	back = slices.DeleteFunc(back, func(file string) bool { return !canRetry(s, file) })
	if len(back) == 0 {
		return text + "; wait for a newer one"
	}
	return text + ". If the node was the cause, run image-update-agent apply --retry " +
		strings.Join(back, " ") + "; if the image was the cause, wait for a newer one"
}

// adviceFor is for a reason that says enough alone; "": others decide, too.
func adviceFor(s status.Status, r status.Reason) string {
	switch r.Kind {
	case status.KindNotUp:
		text := "the pod may be down: see crictl ps -a and crictl logs"
		if canRetry(s, r.PodManifest) {
			text += "; when the cause is fixed, run image-update-agent apply --retry " + r.PodManifest
		}
		return text
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
		return "inspect the catalog of the registry (image-catalog inspect, image-catalog verify); the verified one " +
			"stays in effect. To accept the older catalog: image-update-agent catalog forget"
	case status.KindLocalRegistry:
		return "run image-update-agent doctor: it shows how to make containerd use the local registry again"
	case status.KindTagNotFound:
		return "correct the name of the image or its tag in the pod manifest, or `follow` in the configuration"
	case status.KindTagGone:
		return "publish the tag again, or set `follow` in the configuration"
	case status.KindManifest:
		return "correct " + r.PodManifest + "; image-update-agent manifests images shows its mistake"
	case status.KindNode:
		return "run image-update-agent doctor: it shows what the agent cannot reach"
	case status.KindRecord:
		return "make the directory of the record writable, then run image-update-agent check"
	case status.KindStep:
		return stepCures[r.ErrorKind]
	default:
		return ""
	}
}

// stepCures are what to do about the agent's own work, by its error. After the others the next cycle tries again.
var stepCures = map[status.ErrorKind]string{
	status.ErrorDisk:     "free space on the filesystem of the images, then run image-update-agent check",
	status.ErrorForged:   "compare the fingerprints that image-update-agent doctor shows with the publisher's",
	status.ErrorPlatform: "follow a tag that the publisher built for this platform",
	status.ErrorConflict: "wait for the next cycle, or run image-update-agent check: another program changed the file",
	status.ErrorSource:   "check the connection to the registry; the agent tries again by itself",
}

// deniedAdvice is for releases that run and are denied here.
func deniedAdvice(s status.Status) string {
	var parts []string
	for _, r := range s.Reasons {
		if r.Kind != status.KindDenied || isBound(s, r.PodManifest) {
			continue
		}
		if slices.ContainsFunc(s.PodManifests, func(p status.PodStatus) bool {
			return p.PodManifest == r.PodManifest && p.CanRollBack
		}) {
			parts = append(parts, "roll it back (image-update-agent rollback "+r.PodManifest+")")
		}
		parts = append(parts, "allow it (image-update-agent apply --retry "+r.PodManifest+")")
	}
	if len(parts) == 0 {
		return "see the remedy for each hold below"
	}
	return strings.Join(parts, ", or ")
}

// startAdvice is for a node without a daemon. A pod whose manifest is set aside is gone until it is put back, which a
// daemon does when it starts.
func (p *page) startAdvice() string {
	const start = "start the daemon (systemctl start image-update-agent)"
	if len(p.aside) > 0 {
		return "pods are gone: " + strings.Join(p.aside, ", ") + " is set aside. " +
			"Bring it back: image-update-agent put-back; then " + start
	}
	return start + ": without it, nothing is checked, staged or applied"
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
