// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
)

// nodeState is the node's state by precedence, and what speaks for it. Applying is the loop's to say.
func (a *report) nodeState(plan Plan) (State, []Reason) {
	if failed := a.failures(plan); len(failed) > 0 {
		return StateFailed, failed
	}
	r := a.reasons(plan)
	stale, unasked := a.record.staleSources(), plan.unasked()
	switch {
	case len(r.held) > 0:
		return StateHeld, r.held
	case len(stale) > 0:
		return StateStale, stale
	case len(unasked) > 0:
		return StateUnchecked, unasked
	case len(r.staged) > 0:
		return StateStaged, r.staged
	case len(r.starting) > 0:
		return StateApplying, r.starting
	case len(r.foreign) > 0: // an apply would do nothing but say so
		return StateHeld, r.foreign
	case !plan.follows():
		return StateCurrent, []Reason{{Kind: KindNone, Text: "no image is followed"}}
	default:
		return StateCurrent, plan.nothingToDo(a.record)
	}
}

// stateReasons are what speaks for a state.
type stateReasons struct{ held, staged, starting, foreign []Reason }

// reasons collects what speaks for each state.
func (a *report) reasons(plan Plan) stateReasons {
	var r stateReasons
	for key, err := range a.errs {
		if isWaiting(err) {
			r.held = append(r.held, a.stepReason(key, err))
		}
	}
	for _, p := range plan.Pods {
		for _, h := range slices.Concat(p.Holds, p.Waits) {
			switch {
			case h.Name == HoldUnmanaged: // below: that is so on each node of a cluster
			case h.Name == HoldWithheld && p.unasked():
				// No fault of anybody: it is asked for soon.
			default:
				r.held = append(r.held, h.reason(p.File, h.Image))
			}
		}
		r.starting = append(r.starting, p.downs(true)...)
		switch at := p.Standing(); {
		case at.Result == "", at.Ours && p.Ready:
			r.staged = append(r.staged, listed(Reason{Kind: KindApproval, PodManifest: p.File, Change: p.Change}))
		case at.Result == ResultHeld && !at.Ours && p.Change != "":
			r.foreign = append(r.foreign, p.Holds[0].reason(p.File, ""))
		}
	}
	for _, i := range plan.Tracked {
		for _, h := range i.Holds {
			r.held = append(r.held, h.reason("", i.Target.Repository))
		}
	}
	r.held = sorted(append(r.held, plan.waitedFor()...))
	return r
}

// reason is a hold as a reason of the node's: of a pod manifest, or of an image.
func (h Hold) reason(file, image string) Reason {
	return Reason{
		Kind: KindHold, PodManifest: file, Image: image, Hold: h.Name, Until: h.Until,
		Text: cmp.Or(file, image) + ": " + h.Name + ": " + h.Reason,
	}
}

// stepReason is what a step did not do. key is the pod manifest, or the release.
func (a *report) stepReason(key string, err error) Reason {
	r := Reason{Kind: KindStep, Text: fmt.Sprintf("%s: %v", key, err), ErrorKind: ErrorKindOf(err)}
	repository, d, _ := strings.Cut(key, "@")
	switch {
	case digest.Digest(d).Validate() == nil:
		r.Image, r.Digest = repository, digest.Digest(d)
	case key != grainKey:
		r.PodManifest = key
	}
	if r.ErrorKind == ErrorNotUp {
		r.Kind = a.record.notUp(key)
	}
	return r
}

// notUp is what became of a pod that did not come up.
func (r *Record) notUp(file string) Kind {
	switch {
	case r.Overrides[file].Pending:
		return KindStep // it is to be rolled back still
	case r.Failed[file].Runs == "" && r.rolledBack(file) != nil:
		return KindRolledBack
	default:
		return KindNotUp
	}
}

// unasked reports that nothing but the next poll is missing.
func (p *PodPlan) unasked() bool {
	for _, i := range p.Images {
		if i.Want.Ask.Repository != "" && i.Offer.Unresolved() && !errors.Is(i.Offer.Err, errNotAsked) {
			return false
		}
	}
	return true
}

// follows reports whether there is an image that a source is asked for.
func (p Plan) follows() bool {
	return len(p.Tracked) > 0 || slices.ContainsFunc(p.Pods, func(pod PodPlan) bool {
		return slices.ContainsFunc(pod.Images, func(i ImagePlan) bool { return i.Want.Ask.Repository != "" })
	})
}

// unasked are the pod manifests, and the images that none names, for which no
// source was asked yet.
func (p Plan) unasked() []Reason {
	isUnasked := func(i ImagePlan) bool { return errors.Is(i.Offer.Err, errNotAsked) }
	var out []Reason
	for _, pod := range p.Pods {
		if slices.ContainsFunc(pod.Images, isUnasked) {
			out = append(out, listed(Reason{Kind: KindUnasked, PodManifest: pod.File}))
		}
	}
	for _, i := range p.Tracked {
		if isUnasked(i) {
			out = append(out, listed(Reason{Kind: KindUnasked, Image: i.Offer.Repository}))
		}
	}
	return slices.Compact(out)
}

// failures are what did not work and a person should look at.
func (a *report) failures(plan Plan) []Reason {
	var all []Reason
	for key, err := range a.errs {
		if !isWaiting(err) {
			all = append(all, a.stepReason(key, err))
		}
	}
	for _, p := range plan.Pods {
		if p.Err != nil && a.errs[p.File] == nil {
			all = append(all, Reason{
				Kind: KindManifest, PodManifest: p.File, ErrorKind: ErrorKindOf(p.Err), Text: fmt.Sprintf("%s: %v", p.File, p.Err),
			})
		}
		for _, i := range p.Images {
			// A tag that a pod follows and the registry does not have is an alarm:
			// the pod could not start again.
			if ask := i.Want.Ask; i.Offer.Unresolved() && ask.Tag != "" && errors.Is(i.Offer.Err, ErrNotFound) {
				all = append(all, Reason{
					Kind: KindGone, PodManifest: p.File, Image: ask.Repository, Tag: ask.Tag, ErrorKind: ErrorNotFound,
					Text: fmt.Sprintf("%s: %s: %v", p.File, a.gone(ask), i.Offer.Err),
				})
			}
		}
	}
	return sorted(append(all, a.fallen(plan, a.errs)...))
}

// fallen are the pods that did not come up, and what they did not come up with, and
// those that do not run any more, but for those that something is told of already.
func (a *report) fallen(plan Plan, told map[string]error) []Reason {
	var all []Reason
	said := map[string]bool{}
	for _, p := range plan.Pods {
		said[p.File] = told[p.File] != nil
		if f, ok := a.record.Failed[p.File]; ok && (f.Offer == p.ID || f.Runs != "") && !said[p.File] {
			said[p.File] = true
			kind := KindStep
			if f.Runs != "" {
				kind = a.record.notUp(p.File)
			}
			all = append(all, Reason{Kind: kind, PodManifest: p.File, Since: f.At, Text: p.File + ": " + f.Reason})
		}
		if !said[p.File] {
			all = append(all, p.downs(false)...)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(a.record.Denied)) {
		d := a.record.Denied[key]
		if _, pinned := a.record.Overrides[d.PodManifest]; pinned && !d.ByHand && !d.Past && !said[d.PodManifest] {
			all = append(all, Reason{
				Kind: KindRolledBack, PodManifest: d.PodManifest, Tag: d.Name, Since: d.At,
				Text: fmt.Sprintf("%s: %s was rolled back: %s", d.PodManifest, d.Name, d.Reason),
			})
		}
	}
	return all
}

// gone says which tag is not there, and who named it.
func (a *report) gone(q Question) string {
	if q.Convert && a.Policy.rule(q.Repository).Follow == q.Tag {
		return "the tag that the configuration follows is not there (follow: " + q.Tag + ")"
	}
	return "the followed tag is gone"
}

// staleSources are the sources that do not answer, and since when.
func (r *Record) staleSources() []Reason {
	var out []Reason
	for name, s := range r.Sources {
		if s.Failures > 0 {
			since := "never answered"
			if !s.LastSuccess.IsZero() {
				since = "last answered " + s.LastSuccess.UTC().Format(time.RFC3339)
			}
			out = append(out, Reason{
				Kind: KindSource, Image: name, Host: s.Host, Cause: s.Cause, HTTPStatus: s.HTTPStatus,
				Since: s.LastSuccess, RetryAt: s.RetryAt, Text: fmt.Sprintf("%s (%d failures, %s)", s.Error, s.Failures, since),
			})
		}
	}
	return sorted(out)
}
