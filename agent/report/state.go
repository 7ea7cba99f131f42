// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// NodeState returns the node's state by precedence, and its reasons. Running releases that must not run come first;
// offers that wait for approval come last, in every state. The loop reports the state applying during an apply.
func (r *Report) NodeState(p plan.Plan) (status.State, []status.Reason) {
	state, reasons := r.nodeState(p)
	reasons = append(reasons, r.Record.WhyLost()...)
	if state == status.StateStaged {
		return state, append(r.mustNotRun(p), reasons...)
	}
	if state != status.StateFailed || len(reasons) == 0 || !reasons[0].Kind.MustNotRun() {
		reasons = append(r.mustNotRun(p), reasons...)
	}
	return state, append(reasons, r.waiting(p, state)...)
}

// mustNotRun returns the running releases that the catalog has withdrawn, or that this node has denied.
func (r *Report) mustNotRun(p plan.Plan) []status.Reason {
	return append(r.withdrawn(p), r.denied(p)...)
}

// waiting returns the offers that lack only a person's approval. In the state held, a hold names the offers that mode
// auto leaves to a person.
func (r *Report) waiting(pl plan.Plan, state status.State) []status.Reason {
	isPersons := func(h status.Hold) bool {
		persons := []string{status.HoldControlPlane, status.HoldContradiction, status.HoldFailed}
		return state != status.StateHeld && slices.Contains(persons, h.Name)
	}
	var out []status.Reason
	for _, p := range pl.Pods {
		if p.Standing().Result == "" && (len(p.Waits) == 0 || slices.ContainsFunc(p.Waits, isPersons)) {
			out = append(out, r.approval(p))
		}
	}
	return out
}

// approval returns why a pod waits for approval, and why the last approved apply of its offer was held, unless this
// cycle has a reason for that.
func (r *Report) approval(p plan.PodPlan) status.Reason {
	out := status.Reason{Kind: status.KindApproval, PodManifest: p.File, Change: p.Change}
	if h, is := r.Record.HeldBack[p.File]; is && r.Errs[p.File] == nil {
		out.Held, out.ErrorKind, out.Since = h.Reason, h.Kind, h.At
	}
	return status.WithText(out)
}

func (r *Report) nodeState(p plan.Plan) (status.State, []status.Reason) {
	if failed := r.failures(p); len(failed) > 0 {
		return status.StateFailed, failed
	}
	by := r.reasons(p)
	stale := append(record.StaleSources(r.Record.Sources), r.expiredCatalog()...)
	unasked, mustNotRun := Unasked(p), r.mustNotRun(p)
	switch {
	case len(by.held) > 0:
		return status.StateHeld, by.held
	case len(stale) > 0:
		return status.StateStale, stale
	case len(unasked) > 0:
		return status.StateUnchecked, unasked
	case len(by.staged) > 0:
		return status.StateStaged, by.staged
	case len(mustNotRun) > 0: // without a replacement
		return status.StateFailed, mustNotRun
	case len(by.starting) > 0:
		return status.StateApplying, by.starting
	case len(by.unmanaged) > 0:
		return status.StateHeld, by.unmanaged
	case !follows(p):
		return status.StateCurrent, []status.Reason{{Kind: status.KindNone, Text: "no image to follow"}}
	default:
		return status.StateCurrent, nothingToDo(p, r.Record)
	}
}

// stateReasons are the reasons of each state. unmanaged are changes of pods that the agent does
// not manage.
type stateReasons struct{ held, staged, starting, unmanaged []status.Reason }

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
			case h.Name == status.HoldUnmanaged: // in by.unmanaged
			case h.Name == status.HoldDistribution: // no action on this node ends it
			case h.Name == status.HoldUnresolved && isPodUnasked(&p):
			default:
				by.held = append(by.held, h.AsReason(p.File, h.Image))
			}
		}
		by.starting = append(by.starting, p.Downs(true)...)
		switch at := p.Standing(); {
		case at.Result == "", at.Ours && p.Ready:
			by.staged = append(by.staged, r.approval(p))
		case at.Result == status.ResultHeld && !at.Ours && !p.IsOwned() && p.Change != "":
			by.unmanaged = append(by.unmanaged, p.Holds[0].AsReason(p.File, ""))
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

// isPodUnasked reports whether a pod lacks only answers of the next poll.
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

// Unasked returns the pod manifests, and the images of the configuration, whose source has not been asked yet.
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

// awaited returns newer releases that a rule delays.
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

// nothingToDo returns why a node in the state current has no offers.
func nothingToDo(p plan.Plan, rec *record.Record) []status.Reason {
	var why, looksNewer, rebuildsOnly, unknown []status.Reason
	for _, pod := range p.Pods {
		if u, is := rec.Unchecked[pod.File]; is {
			why = append(why, status.Reason{
				Kind: status.KindUnchecked, PodManifest: pod.File, Since: u.At, Text: pod.File + ": " + u.Reason,
			})
		}
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
		if no := i.Offer.NoList; no != nil {
			unknown = append(unknown, status.Reason{
				Kind: status.KindNoTagList, Image: i.Offer.Repository, Host: no.Host, Cause: no.Cause, HTTPStatus: no.HTTPStatus,
				Since: no.Since, Text: "newer tags are unknown: " + no.Error + " (since " + no.Since.Format(time.RFC3339) + ")",
			})
		}
		if len(i.Offer.LooksNewer) > 0 { // the nearest; the notes of the image have all
			looksNewer = append(looksNewer, status.WithText(
				status.Reason{Kind: status.KindLooksNewer, Image: i.Offer.Repository, Tag: i.Offer.LooksNewer[0].Tag},
			))
		}
		if i.RebuildsOnly != nil {
			rebuildsOnly = append(rebuildsOnly, status.WithText(
				status.Reason{Kind: status.KindRebuildsOnly, Image: i.Offer.Repository, Tag: i.RebuildsOnly.Tag},
			))
		}
	})
	for _, reasons := range [][]status.Reason{unknown, looksNewer, rebuildsOnly} {
		why = append(why, status.Sorted(reasons)...)
	}
	if len(why) == 0 && rec.Lost == nil {
		return []status.Reason{{Kind: status.KindNone, Text: "everything is up to date"}}
	}
	return append([]status.Reason{{Kind: status.KindNone, Text: "nothing to apply"}}, why...)
}

// StandingHolds returns the active holds of people and of the configuration, those on all images first.
func StandingHolds(r *Report, pl plan.Plan) []status.StandingHold {
	now, out := r.Now(), []status.StandingHold{}
	byConfiguration := status.Actor{Kind: status.ByConfiguration}
	if !r.Record.HasPassed(r.Policy.Freeze, now) {
		until := r.Policy.Freeze.UTC()
		out = append(out, status.StandingHold{
			Repository: record.AllImages, Name: status.HoldFreeze, Until: &until, By: byConfiguration,
			Reason: "no updates before " + until.Format(time.RFC3339),
		})
	}
	if lost := r.Record.Lost; lost != nil && r.Policy.Auto {
		out = append(out, status.StandingHold{
			Repository: record.AllImages, Name: status.HoldRecord, Reason: lost.Reason, Since: when(lost.At),
		})
	}
	for _, repository := range slices.Sorted(maps.Keys(r.Record.Holds)) {
		h := r.Record.Holds[repository]
		if !r.Record.IsHeld(h, now) {
			continue
		}
		if h.By.Kind == "" { // an agent without the field recorded it
			h.By.Kind = status.ByPerson
		}
		out = append(out, status.StandingHold{
			Repository: repository, Name: status.HoldRequested, Reason: h.Reason, Since: when(h.At),
			Until: when(h.Until), By: h.By,
		})
	}
	followed := map[string]bool{}
	pl.Images(func(_ string, i plan.ImagePlan) { followed[i.Offer.Repository] = true })
	for _, repository := range slices.Sorted(maps.Keys(followed)) {
		rule := r.Policy.RuleFor(repository)
		if rule.Hold != "" && r.Record.IsHeld(record.PersonHold{Until: rule.HoldUntil}, now) {
			out = append(out, status.StandingHold{
				Repository: repository, Name: status.HoldRequested, Reason: rule.Hold, Until: when(rule.HoldUntil),
				By: byConfiguration,
			})
		}
	}
	for n := range out {
		out[n] = out[n].Explained()
	}
	slices.SortStableFunc(out, func(x, y status.StandingHold) int { return strings.Compare(x.Repository, y.Repository) })
	return out
}
