// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// report keeps what ran well, tells the admin's UI and writes the status. The
// plan is of the node as it is now, after the steps: all three say what is, not
// what was to be.
func (a *Agent) report(ctx context.Context, inv Inventory, offers map[Question]Offer, plan Plan) (Status, error) {
	a.record.noteGood(plan, a.Policy.Prune.Keep)
	a.record.Least = maps.Clone(a.least)
	a.record.forget(plan, offers, inv, a.Now())
	a.least = maps.Clone(a.record.Least)
	updates := updatesOf(plan)
	if err := a.announce(ctx, plan, updates); err != nil {
		a.Log.Warn("grain not set", "cycle", a.cycle, "err", err)
		a.errs[grainKey] = fmt.Errorf("grain: %w", err)
	}
	state, reason := a.judge(plan)
	a.unasked, a.missing = len(plan.unasked()) > 0, plan.missing()
	a.watched.update(plan, inv)
	s := a.blank(state, reason)
	s.Sources, s.Updates, s.NotAllowed = sourceStatus(a.record), updates, plan.notAllowed()
	for _, p := range plan.Pods {
		s.PodManifests = append(s.PodManifests, a.podStatus(p))
	}
	a.addImages(&s, plan)
	err := a.save(ctx)
	if err != nil {
		// What is not kept is forgotten at the next start: holds, approvals, waits.
		s.State, s.Reason = StateFailed, strings.TrimSuffix(err.Error()+"; "+s.Reason, "; ")
		a.Log.Error("record not kept", "cycle", a.cycle, "err", err)
	}
	published := a.publish(ctx, &s)
	if published != nil {
		a.Log.Warn("status not published", "cycle", a.cycle, "err", published)
	}
	return s, errors.Join(err, published)
}

// standing are the offers for what is followed now. A step may have moved a pod
// on to another tag: what was just applied is then the last answer for it.
func (a *Agent) standing(inv Inventory, asked map[Question]Offer) map[Question]Offer {
	out := map[Question]Offer{}
	for _, q := range questions(survey(inv, a.record.Overrides, a.Policy), a.Policy) {
		o, ok := asked[q]
		if !ok {
			o = a.remembered(q, errNotAsked)
		}
		out[q] = o
	}
	return out
}

// grainKey is where the grain's own trouble stands among a cycle's errors.
const grainKey = "grain"

// announce tells the UI what is staged and waits for approval.
func (a *Agent) announce(ctx context.Context, plan Plan, updates []AnnouncedUpdate) error {
	state, _ := a.judge(plan)
	err := a.Announcer.Announce(ctx, Announcement{
		State: string(state), Reason: joined(a.fallen(plan, nil)), Updates: updates,
		NotAllowed: plan.notAllowed(),
	})
	if errors.Is(err, ErrHeld) {
		a.Log.Info("grain is held", "cycle", a.cycle, "reason", err)
		return nil
	}
	return err
}

// updatesOf are what a plan has staged and waits for approval, each once, sorted.
func updatesOf(plan Plan) []AnnouncedUpdate {
	out := []AnnouncedUpdate{}
	for _, p := range plan.Pods {
		if !p.Ready || p.Change == ChangeRemove {
			continue
		}
		for _, i := range p.Images {
			change := i.Change
			if change == "" && p.Waiting && i.Want.OnDisk.Repository != "" && p.Change == ChangeConvert {
				change = ChangeConvert // pull policy alone
			}
			if change != "" {
				out = append(out, AnnouncedUpdate{
					Image: i.Target.Repository, Change: change, From: i.From,
					To: i.Target.Name(), Digest: i.Target.Digest,
				})
			}
		}
	}
	slices.SortFunc(out, func(x, y AnnouncedUpdate) int {
		return strings.Compare(x.Image+x.To+x.From, y.Image+y.To+y.From)
	})
	return slices.Compact(out)
}

// judge draws the node's state by precedence. Applying is the loop's to say.
func (a *Agent) judge(plan Plan) (State, string) {
	if reason := a.failure(plan); reason != "" {
		return StateFailed, reason
	}
	r := a.reasons(plan)
	stale, unasked := a.record.staleSources(), plan.unasked()
	switch {
	case len(r.held) > 0:
		return StateHeld, strings.Join(r.held, "; ")
	case len(stale) > 0:
		return StateStale, strings.Join(stale, "; ")
	case len(unasked) > 0:
		return StateUnchecked, "no registry was asked yet for " + strings.Join(unasked, ", ")
	case len(r.staged) > 0:
		return StateStaged, "waiting for approval: " + strings.Join(r.staged, ", ")
	case len(r.starting) > 0:
		return StateApplying, joined(r.starting)
	case len(r.foreign) > 0: // an apply would do nothing but say so
		return StateHeld, strings.Join(r.foreign, "; ")
	case !plan.follows():
		return StateCurrent, "no image is followed"
	default:
		return StateCurrent, plan.nothingToDo(&a.record)
	}
}

// stateReasons are what speaks for a state, one text for each pod manifest or release.
type stateReasons struct{ held, staged, starting, foreign []string }

// reasons collects what speaks for each state.
func (a *Agent) reasons(plan Plan) stateReasons {
	var r stateReasons
	for key, err := range a.errs {
		if waits(err) {
			r.held = append(r.held, fmt.Sprintf("%s: %v", key, err))
		}
	}
	for _, p := range plan.Pods {
		for _, h := range slices.Concat(p.Holds, p.Waits) {
			switch {
			case h.Name == HoldUnmanaged: // below: that is so on each node of a cluster
			case h.Name == HoldWithheld && p.unasked():
				// No fault of anybody: it is asked for soon.
			default:
				r.held = append(r.held, fmt.Sprintf("%s: %s: %s", p.File, h.Name, h.Reason))
			}
		}
		r.starting = append(r.starting, p.downs(true)...)
		switch at := p.Standing(); {
		case at.Result == "", at.Ours && p.Ready:
			r.staged = append(r.staged, fmt.Sprintf("%s (%s)", p.File, p.Change))
		case at.Result == ResultHeld && !at.Ours && p.Change != "":
			r.foreign = append(r.foreign, fmt.Sprintf("%s: %s", p.File, at.Reason))
		}
	}
	for _, i := range plan.Tracked {
		for _, h := range i.Holds {
			r.held = append(r.held, fmt.Sprintf("%s: %s: %s", i.Target.Repository, h.Name, h.Reason))
		}
	}
	r.held = append(r.held, plan.waitedFor()...)
	slices.Sort(r.held)
	return r
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
func (p Plan) unasked() []string {
	isUnasked := func(i ImagePlan) bool { return errors.Is(i.Offer.Err, errNotAsked) }
	var out []string
	for _, pod := range p.Pods {
		if slices.ContainsFunc(pod.Images, isUnasked) {
			out = append(out, pod.File)
		}
	}
	for _, i := range p.Tracked {
		if isUnasked(i) {
			out = append(out, i.Offer.Repository)
		}
	}
	return slices.Compact(out)
}

// failure is what did not work and a person should look at.
func (a *Agent) failure(plan Plan) string {
	var all []string
	for key, err := range a.errs {
		if !waits(err) {
			all = append(all, fmt.Sprintf("%s: %v", key, err))
		}
	}
	for _, p := range plan.Pods {
		if p.Err != nil && a.errs[p.File] == nil {
			all = append(all, fmt.Sprintf("%s: %v", p.File, p.Err))
		}
		for _, i := range p.Images {
			// A tag that a pod follows and the registry does not have is an alarm:
			// the pod could not start again.
			if i.Offer.Unresolved() && i.Want.Ask.Tag != "" && errors.Is(i.Offer.Err, ErrNotFound) {
				all = append(all, fmt.Sprintf("%s: %s: %v", p.File, a.gone(i.Want.Ask), i.Offer.Err))
			}
		}
	}
	all = append(all, a.fallen(plan, a.errs)...)
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "; ")
}

// fallen are the pods that did not come up, and what they did not come up with, and
// those that do not run any more, but for those that something is told of already.
func (a *Agent) fallen(plan Plan, told map[string]error) []string {
	var all []string
	said := map[string]bool{}
	for _, p := range plan.Pods {
		said[p.File] = told[p.File] != nil
		if f, ok := a.record.Failed[p.File]; ok && (f.Offer == p.ID || f.Runs != "") && !said[p.File] {
			said[p.File] = true
			all = append(all, fmt.Sprintf("%s: %s", p.File, f.Reason))
		}
		if !said[p.File] {
			all = append(all, p.downs(false)...)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(a.record.Denied)) {
		d := a.record.Denied[key]
		if _, pinned := a.record.Overrides[d.PodManifest]; pinned && !d.ByHand && !d.Past && !said[d.PodManifest] {
			all = append(all, fmt.Sprintf("%s: %s was rolled back: %s", d.PodManifest, d.Name, d.Reason))
		}
	}
	return all
}

// gone says which tag is not there, and who named it.
func (a *Agent) gone(q Question) string {
	if q.Convert && a.Policy.rule(q.Repository).Follow == q.Tag {
		return "the tag that the configuration follows is not there (follow: " + q.Tag + ")"
	}
	return "the followed tag is gone"
}

// staleSources are the sources that do not answer, and since when.
func (r *Record) staleSources() []string {
	var out []string
	for _, s := range r.Sources {
		if s.Failures > 0 {
			since := "never answered"
			if !s.LastSuccess.IsZero() {
				since = "last answered " + s.LastSuccess.UTC().Format(time.RFC3339)
			}
			out = append(out, fmt.Sprintf("%s (%d failures, %s)", s.Error, s.Failures, since))
		}
	}
	slices.Sort(out)
	return out
}
