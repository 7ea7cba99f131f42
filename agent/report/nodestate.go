// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// NodeState is the node's state by precedence, and what speaks for it. Applying is the loop's to say.
func (a *Report) NodeState(plan plan.Plan) (status.State, []status.Reason) {
	if failed := a.failures(plan); len(failed) > 0 {
		return status.StateFailed, failed
	}
	r := a.reasons(plan)
	stale, unasked := record.StaleSources(a.Record.Sources), Unasked(plan)
	switch {
	case len(r.held) > 0:
		return status.StateHeld, r.held
	case len(stale) > 0:
		return status.StateStale, stale
	case len(unasked) > 0:
		return status.StateUnchecked, unasked
	case len(r.staged) > 0:
		return status.StateStaged, r.staged
	case len(r.starting) > 0:
		return status.StateApplying, r.starting
	case len(r.foreign) > 0: // an apply would do nothing but say so
		return status.StateHeld, r.foreign
	case !follows(plan):
		return status.StateCurrent, []status.Reason{{Kind: status.KindNone, Text: "no image is followed"}}
	default:
		return status.StateCurrent, nothingToDo(plan, a.Record)
	}
}

// stateReasons are what speaks for a state.
type stateReasons struct{ held, staged, starting, foreign []status.Reason }

// reasons collects what speaks for each state.
func (a *Report) reasons(plan plan.Plan) stateReasons {
	var r stateReasons
	for key, err := range a.Errs {
		if release.IsWaiting(err) {
			r.held = append(r.held, a.stepReason(key, err))
		}
	}
	for _, p := range plan.Pods {
		for _, h := range slices.Concat(p.Holds, p.Waits) {
			switch {
			case h.Name == status.HoldUnmanaged: // below: that is so on each node of a cluster
			case h.Name == status.HoldWithheld && isPodUnasked(&p):
				// No fault of anybody: it is asked for soon.
			default:
				r.held = append(r.held, h.AsReason(p.File, h.Image))
			}
		}
		r.starting = append(r.starting, p.Downs(true)...)
		switch at := p.Standing(); {
		case at.Result == "", at.Ours && p.Ready:
			r.staged = append(
				r.staged, status.Listed(status.Reason{Kind: status.KindApproval, PodManifest: p.File, Change: p.Change}),
			)
		case at.Result == status.ResultHeld && !at.Ours && p.Change != "":
			r.foreign = append(r.foreign, p.Holds[0].AsReason(p.File, ""))
		}
	}
	for _, i := range plan.Tracked {
		for _, h := range i.Holds {
			r.held = append(r.held, h.AsReason("", i.Target.Repository))
		}
	}
	r.held = status.Sorted(append(r.held, awaited(plan)...))
	return r
}

// stepReason is what a step did not do. key is the pod manifest, or the release.
func (a *Report) stepReason(key string, err error) status.Reason {
	r := status.Reason{Kind: status.KindStep, Text: fmt.Sprintf("%s: %v", key, err), ErrorKind: status.ErrorKindOf(err)}
	repository, d, _ := strings.Cut(key, "@")
	switch {
	case digest.Digest(d).Validate() == nil:
		r.Image, r.Digest = repository, digest.Digest(d)
	case key != GrainKey:
		r.PodManifest = key
	}
	if r.ErrorKind == status.ErrorNotUp {
		r.Kind = a.Record.NotUp(key)
	}
	return r
}

// isPodUnasked reports that nothing but the next poll is missing.
func isPodUnasked(p *plan.PodPlan) bool {
	for _, i := range p.Images {
		if i.Want.Ask.Repository != "" && i.Offer.Unresolved() && !errors.Is(i.Offer.Err, release.ErrNotAsked) {
			return false
		}
	}
	return true
}

// follows reports whether there is an image that a source is asked for.
func follows(p plan.Plan) bool {
	return len(p.Tracked) > 0 || slices.ContainsFunc(p.Pods, func(pod plan.PodPlan) bool {
		return slices.ContainsFunc(pod.Images, func(i plan.ImagePlan) bool { return i.Want.Ask.Repository != "" })
	})
}

// Unasked are the pod manifests, and the images that none names, for which no
// source was asked yet.
func Unasked(p plan.Plan) []status.Reason {
	isUnasked := func(i plan.ImagePlan) bool { return errors.Is(i.Offer.Err, release.ErrNotAsked) }
	var out []status.Reason
	for _, pod := range p.Pods {
		if slices.ContainsFunc(pod.Images, isUnasked) {
			out = append(out, status.Listed(status.Reason{Kind: status.KindUnasked, PodManifest: pod.File}))
		}
	}
	for _, i := range p.Tracked {
		if isUnasked(i) {
			out = append(out, status.Listed(status.Reason{Kind: status.KindUnasked, Image: i.Offer.Repository}))
		}
	}
	return slices.Compact(out)
}

// failures are what did not work and a person should look at.
func (a *Report) failures(plan plan.Plan) []status.Reason {
	var all []status.Reason
	for key, err := range a.Errs {
		if !release.IsWaiting(err) {
			all = append(all, a.stepReason(key, err))
		}
	}
	for _, p := range plan.Pods {
		if p.Err != nil && a.Errs[p.File] == nil {
			all = append(all, status.Reason{
				Kind: status.KindManifest, PodManifest: p.File, ErrorKind: status.ErrorKindOf(p.Err),
				Text: fmt.Sprintf("%s: %v", p.File, p.Err),
			})
		}
		for _, i := range p.Images {
			// A tag that a pod follows and the registry does not have is an alarm:
			// the pod could not start again.
			if ask := i.Want.Ask; i.Offer.Unresolved() && ask.Tag != "" && errors.Is(i.Offer.Err, release.ErrNotFound) {
				all = append(all, status.Reason{
					Kind: status.KindGone, PodManifest: p.File, Image: ask.Repository, Tag: ask.Tag, ErrorKind: status.ErrorNotFound,
					Text: fmt.Sprintf("%s: %s: %v", p.File, a.gone(ask), i.Offer.Err),
				})
			}
		}
	}
	return status.Sorted(append(all, a.notUp(plan, a.Errs)...))
}

// notUp are the pods that did not come up, and what they did not come up with, and
// those that do not run any more, but for those that something is told of already.
func (a *Report) notUp(plan plan.Plan, told map[string]error) []status.Reason {
	var all []status.Reason
	said := map[string]bool{}
	for _, p := range plan.Pods {
		said[p.File] = told[p.File] != nil
		if f, ok := a.Record.Failed[p.File]; ok && (f.Offer == p.ID || f.Runs != "") && !said[p.File] {
			said[p.File] = true
			kind := status.KindStep
			if f.Runs != "" {
				kind = a.Record.NotUp(p.File)
			}
			all = append(all, status.Reason{Kind: kind, PodManifest: p.File, Since: f.At, Text: p.File + ": " + f.Reason})
		}
		if !said[p.File] {
			all = append(all, p.Downs(false)...)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(a.Record.Denied)) {
		d := a.Record.Denied[key]
		if _, pinned := a.Record.Overrides[d.PodManifest]; pinned && !d.ByHand && !d.Past && !said[d.PodManifest] {
			all = append(all, status.Reason{
				Kind: status.KindRolledBack, PodManifest: d.PodManifest, Tag: d.Name, Since: d.At,
				Text: fmt.Sprintf("%s: %s was rolled back: %s", d.PodManifest, d.Name, d.Reason),
			})
		}
	}
	return all
}

// gone says which tag is not there, and who named it.
func (a *Report) gone(q release.Question) string {
	if q.Convert && a.Policy.RuleFor(q.Repository).Follow == q.Tag {
		return "the tag that the configuration follows is not there (follow: " + q.Tag + ")"
	}
	return "the followed tag is gone"
}
