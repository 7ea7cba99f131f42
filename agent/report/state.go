// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// NodeState is the node's state by precedence, and its reasons. The loop reports the state
// applying during an apply.
func (r *Report) NodeState(p plan.Plan) (status.State, []status.Reason) {
	if failed := r.failures(p); len(failed) > 0 {
		return status.StateFailed, failed
	}
	by := r.reasons(p)
	stale := append(record.StaleSources(r.Record.Sources), catalogReport{r}.expired()...)
	withdrawn, unasked := catalogReport{r}.withdrawn(p), Unasked(p)
	switch {
	case len(by.held) > 0:
		return status.StateHeld, append(by.held, withdrawn...)
	case len(stale) > 0:
		return status.StateStale, append(stale, withdrawn...)
	case len(unasked) > 0:
		return status.StateUnchecked, append(unasked, withdrawn...)
	case len(by.staged) > 0:
		return status.StateStaged, append(by.staged, withdrawn...)
	case len(withdrawn) > 0: // and nothing is offered instead
		return status.StateFailed, withdrawn
	case len(by.starting) > 0:
		return status.StateApplying, by.starting
	case len(by.foreign) > 0:
		return status.StateHeld, by.foreign
	case !follows(p):
		return status.StateCurrent, []status.Reason{{Kind: status.KindNone, Text: "no image is followed"}}
	default:
		return status.StateCurrent, nothingToDo(p, r.Record)
	}
}

// stateReasons are the reasons of each state. foreign are changes of pods that the agent does
// not manage.
type stateReasons struct{ held, staged, starting, foreign []status.Reason }

func (r *Report) reasons(pl plan.Plan) stateReasons {
	var by stateReasons
	for key, err := range r.Errs {
		if release.IsWaiting(err) && !isAwaitedLock(pl, key) {
			by.held = append(by.held, r.stepReason(key, err))
		}
	}
	for _, p := range pl.Pods {
		for _, h := range slices.Concat(p.Holds, p.Waits) {
			switch {
			case h.Name == status.HoldUnmanaged: // in by.foreign
			case h.Name == status.HoldWithheld && isPodUnasked(&p):
			default:
				by.held = append(by.held, h.AsReason(p.File, h.Image))
			}
		}
		by.starting = append(by.starting, p.Downs(true)...)
		switch at := p.Standing(); {
		case at.Result == "", at.Ours && p.Ready:
			by.staged = append(
				by.staged, status.WithText(status.Reason{Kind: status.KindApproval, PodManifest: p.File, Change: p.Change}),
			)
		case at.Result == status.ResultHeld && !at.Ours && p.Change != "":
			by.foreign = append(by.foreign, p.Holds[0].AsReason(p.File, ""))
		}
	}
	for _, i := range pl.Tracked {
		for _, h := range i.Holds {
			by.held = append(by.held, h.AsReason("", i.Target.Repository))
		}
	}
	by.held = status.Sorted(append(by.held, awaited(pl)...))
	return by
}

// isPodUnasked reports that a pod lacks nothing but answers of the next poll.
func isPodUnasked(p *plan.PodPlan) bool {
	return !slices.ContainsFunc(p.Images, func(i plan.ImagePlan) bool {
		return i.Want.Ask.Repository != "" && i.Offer.IsUnresolved() && !errors.Is(i.Offer.Err, release.ErrNotAsked)
	})
}

// follows reports whether any source is asked for an image.
func follows(p plan.Plan) (is bool) {
	p.Images(func(string, plan.ImagePlan) { is = true })
	return is
}

// Unasked are the pod manifests, and the images of the configuration, for which no source was
// asked yet.
func Unasked(p plan.Plan) []status.Reason {
	var out []status.Reason
	p.Images(func(file string, i plan.ImagePlan) {
		if !errors.Is(i.Offer.Err, release.ErrNotAsked) {
			return
		}
		reason := status.Reason{Kind: status.KindUnasked, PodManifest: file}
		if file == "" {
			reason.Image = i.Offer.Repository
		}
		out = append(out, status.WithText(reason))
	})
	return slices.Compact(out)
}

// awaited are newer releases that a rule holds for a time.
func awaited(p plan.Plan) []status.Reason {
	var out []status.Reason
	p.Images(func(file string, i plan.ImagePlan) {
		for _, no := range i.Offer.Refused {
			if !no.Holds {
				continue
			}
			reason := status.Reason{
				Kind: status.KindAwaited, PodManifest: file, Image: i.Offer.Repository, Tag: no.Tag, Rule: no.Rule, Since: no.Since,
				RetryAt: no.RetryAt, Text: no.Rule + ": " + i.Offer.Repository + ":" + no.Tag + ": " + no.Reason,
			}
			if file != "" {
				reason.Text = file + ": " + reason.Text
			}
			out = append(out, reason)
		}
	})
	return out
}

// nothingToDo is why a node in the state current is offered nothing.
func nothingToDo(p plan.Plan, rec *record.Record) []status.Reason {
	var why, rebuildsOnly []status.Reason
	for _, pod := range p.Pods {
		if b := rec.RolledBack(pod.File); b != nil {
			why = append(why, status.Reason{
				Kind: status.KindRolledBack, PodManifest: pod.File, Since: b.At, Text: b.Sentence(pod.File),
			})
		}
	}
	for _, n := range p.NotAllowed() {
		r := status.Reason{Kind: status.KindNotAllowed, Image: n.Image, Tag: n.Tag, Rule: n.Rule}
		why = append(why, status.WithText(r))
	}
	p.Images(func(_ string, i plan.ImagePlan) {
		if i.RebuildsOnly != nil {
			rebuildsOnly = append(rebuildsOnly, status.WithText(
				status.Reason{Kind: status.KindRebuildsOnly, Image: i.Offer.Repository, Tag: i.RebuildsOnly.Tag},
			))
		}
	})
	why = append(why, status.Sorted(rebuildsOnly)...)
	if len(why) == 0 {
		return []status.Reason{{Kind: status.KindNone, Text: "every followed image is the newest that policy allows"}}
	}
	return append([]status.Reason{{Kind: status.KindNone, Text: "nothing to apply"}}, why...)
}
