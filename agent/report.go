// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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
	state, reasons := a.nodeState(plan)
	a.unasked, a.missing = len(plan.unasked()) > 0, plan.missing()
	a.watched.update(plan, inv)
	s := a.blank(state, reasons...)
	s.Sources, s.Updates, s.NotAllowed = sourceStatus(a.record), updates, plan.notAllowed()
	for _, p := range plan.Pods {
		s.PodManifests = append(s.PodManifests, a.podStatus(p))
	}
	a.addImages(&s, plan)
	err := a.save(ctx)
	if err != nil {
		// What is not kept is forgotten at the next start: holds, approvals, waits.
		s.fails(Reason{Kind: KindRecord, Text: err.Error(), ErrorKind: ErrorKindOf(err)})
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
	state, _ := a.nodeState(plan)
	err := a.Announcer.Announce(ctx, Announcement{
		State: string(state), Reason: sentence(a.fallen(plan, nil)), Updates: updates,
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
