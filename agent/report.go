// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// report looks at the node once more, keeps what ran well, tells the admin's UI
// and writes the status: all three say what is, not what was planned.
func (a *Agent) report(ctx context.Context, offers map[Question]Offer) (Status, error) {
	ctx = context.WithoutCancel(ctx) // the last word of a cycle is always said
	inv, err := a.inventory(ctx)
	if err != nil {
		return a.unseen(ctx, err)
	}
	offers = a.standing(inv, offers)
	plan := Decide(inv, offers, a.record, a.Policy, a.Now())
	a.record.noteGood(plan, a.applied)
	a.record.forget(plan, offers, inv)
	if err := a.announce(ctx, plan); err != nil {
		a.Log.Warn("grain not set", "cycle", a.cycle, "err", err)
		a.errs[grainKey] = fmt.Errorf("grain: %w", err)
	}
	state, reason := a.judge(plan)
	s := a.blank(state, reason)
	s.Sources = sourceStatus(a.record)
	for _, p := range plan.Pods {
		s.PodManifests = append(s.PodManifests, a.podStatus(p))
		for _, i := range p.Images {
			if i.Want.Ask.Repository != "" {
				s.Images = append(s.Images, a.imageStatus(p, i))
			}
		}
	}
	for _, i := range plan.Tracked {
		s.Images = append(s.Images, a.imageStatus(PodPlan{}, i))
	}
	return s, errors.Join(a.save(ctx), a.publish(ctx, s))
}

// standing are the offers for what is followed now. A step may have moved a pod
// on to another tag: what was just applied is then the last answer for it.
func (a *Agent) standing(inv Inventory, asked map[Question]Offer) map[Question]Offer {
	out := map[Question]Offer{}
	for _, q := range questions(survey(inv, a.Policy), a.Policy) {
		o, ok := asked[q]
		if !ok {
			o = a.remembered(q, errNotAsked)
		}
		if m, known := a.record.recall(q); !ok && known {
			a.record.remember(q, o, m.At)
		}
		out[q] = o
	}
	return out
}

// grainKey is where the grain's own trouble stands among a cycle's errors.
const grainKey = "grain"

// announce tells the UI what is staged and waits for approval.
func (a *Agent) announce(ctx context.Context, plan Plan) error {
	state, _ := a.judge(plan)
	out := Announcement{State: string(state)}
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
				out.Updates = append(out.Updates, AnnouncedUpdate{
					Image: i.Target.Repository, Change: change, From: i.From,
					To: i.Target.Name(), Digest: i.Target.Digest,
				})
			}
		}
	}
	slices.SortFunc(out.Updates, func(x, y AnnouncedUpdate) int {
		return strings.Compare(x.Image+x.To+x.From, y.Image+y.To+y.From)
	})
	out.Updates = slices.Compact(out.Updates)
	err := a.Announcer.Announce(ctx, out)
	if errors.Is(err, ErrHeld) {
		a.Log.Info("grain is held", "cycle", a.cycle, "reason", err)
		return nil
	}
	return err
}

// judge draws the node's state by precedence. Applying is the loop's to say.
func (a *Agent) judge(plan Plan) (State, string) {
	if reason := a.failure(plan); reason != "" {
		return StateFailed, reason
	}
	var held, staged []string
	for _, p := range plan.Pods {
		for _, h := range p.Holds {
			if h.Name != HoldUnmanaged {
				held = append(held, fmt.Sprintf("%s: %s: %s", p.File, h.Name, h.Reason))
			}
		}
		if p.Ready {
			staged = append(staged, fmt.Sprintf("%s (%s)", p.File, p.Change))
		}
	}
	stale := a.record.staleSources()
	switch {
	case len(held) > 0:
		return StateHeld, strings.Join(held, "; ")
	case len(stale) > 0:
		return StateStale, strings.Join(stale, "; ")
	case len(staged) > 0:
		return StateStaged, "waiting for approval: " + strings.Join(staged, ", ")
	case a.record.LastCheck.IsZero():
		return StateCurrent, "nothing has been asked yet"
	default:
		return StateCurrent, "every followed image is the newest that policy allows"
	}
}

// failure is what did not work and a person should look at.
func (a *Agent) failure(plan Plan) string {
	var all []string
	for key, err := range a.errs {
		all = append(all, fmt.Sprintf("%s: %v", key, err))
	}
	for _, p := range plan.Pods {
		if p.Err != nil && a.errs[p.File] == nil {
			all = append(all, fmt.Sprintf("%s: %v", p.File, p.Err))
		}
		for _, i := range p.Images {
			// A tag that a pod follows and the registry does not have is an alarm:
			// the pod could not start again.
			if i.Offer.Unresolved() && i.Want.Ask.Tag != "" && errors.Is(i.Offer.Err, ErrNotFound) {
				all = append(all, fmt.Sprintf("%s: the followed tag is gone: %v", p.File, i.Offer.Err))
			}
		}
		if f, ok := a.record.Failed[p.File]; ok && f.Offer == p.Offer && a.errs[p.File] == nil {
			all = append(all, fmt.Sprintf("%s: apply: %s", p.File, f.Reason))
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "; ")
}

// staleSources are the sources that do not answer, and since when.
func (r *Record) staleSources() []string {
	var out []string
	for _, s := range r.Sources {
		if s.Failures > 0 {
			since := "never answered"
			if !s.LastSuccess.IsZero() {
				since = "last answered " + s.LastSuccess.Format(time.RFC3339)
			}
			out = append(out, fmt.Sprintf("%s (%d failures, %s)", s.Error, s.Failures, since))
		}
	}
	slices.Sort(out)
	return out
}

// noteGood keeps which digest each container runs, and which one it ran before:
// the way back. What was not approved in this cycle was adopted.
func (r *Record) noteGood(plan Plan, approved map[string]bool) {
	for _, p := range plan.Pods {
		for _, i := range p.Images {
			repository, running := i.Want.Ask.Repository, i.Running.Digest
			if repository == "" || running == "" {
				continue
			}
			if r.Good == nil {
				r.Good = map[string]Good{}
			}
			key := goodKey(p.File, i.Want.Image.Container)
			g, ok := r.Good[key]
			if ok && g.Running == running && g.Repository == repository {
				continue
			}
			r.Good[key] = Good{
				Repository: repository, Running: running, Previous: g.Running,
				Adopted: ok && g.Running != "" && !approved[p.File],
			}
		}
	}
}

// forget drops what nothing needs any more, so that the record stays small.
func (r *Record) forget(plan Plan, offers map[Question]Offer, inv Inventory) {
	files := fileNames(inv)
	for key := range r.Good {
		if file, _, _ := strings.Cut(key, "/"); !slices.Contains(files, file) {
			delete(r.Good, key)
		}
	}
	offered := map[string]string{}
	for _, p := range plan.Pods {
		offered[p.File] = p.Offer
	}
	for file, f := range r.Failed {
		if offered[file] != f.Offer {
			delete(r.Failed, file)
		}
	}
	for file, yes := range r.Approved {
		if offered[file] != yes.Offer {
			delete(r.Approved, file)
		}
	}
	asked := map[string]bool{}
	for q := range offers {
		asked[q.String()], asked[q.Repository] = true, true
	}
	keep := r.inUse(offers)
	deleteUnless(r.Offers, asked)
	deleteUnless(r.Sources, asked)
	deleteUnless(r.Lists, asked)
	deleteUnless(r.Releases, keep)
}

// inUse are the releases that are offered, run, or are the way back.
func (r *Record) inUse(offers map[Question]Offer) map[string]bool {
	keep := map[string]bool{}
	for _, o := range offers {
		for _, rel := range []Release{o.Follow, o.Newest} {
			keep[releaseKey(rel.Repository, rel.Digest)] = true
		}
	}
	for _, g := range r.Good {
		keep[releaseKey(g.Repository, g.Running)] = true
		keep[releaseKey(g.Repository, g.Previous)] = true
	}
	return keep
}

func deleteUnless[V any](m map[string]V, keep map[string]bool) {
	for k := range m {
		if !keep[k] {
			delete(m, k)
		}
	}
}
