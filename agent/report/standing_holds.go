// SPDX-License-Identifier: Apache-2.0

package report

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
)

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
