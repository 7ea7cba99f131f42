// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// addHolds adds the holds of people and of the configuration.
func (f *facts) addHolds(p *PodPlan) {
	if h, ok := f.rec.Holds[record.AllImages]; ok && f.rec.IsHeld(h, f.now) {
		f.addHold(p, record.AllImages, status.ByPerson, h.Reason, h.Until)
	}
	for _, i := range p.Images {
		repository := i.Want.Ask.Repository
		if h, ok := f.rec.Holds[repository]; ok && f.rec.IsHeld(h, f.now) {
			f.addHold(p, repository, status.ByPerson, h.Reason, h.Until)
		}
		rule := f.policy.RuleFor(repository)
		if rule.Hold != "" && f.rec.IsHeld(record.PersonHold{Until: rule.HoldUntil}, f.now) {
			f.addHold(p, repository, status.ByConfiguration, rule.Hold, rule.HoldUntil)
		}
	}
}

func (f *facts) addHold(p *PodPlan, image, by, reason string, until time.Time) {
	text := image
	if image == record.AllImages {
		text = "everything"
	}
	if reason != "" {
		text += ": " + reason
	}
	if by == status.ByConfiguration {
		text += " (configuration)"
	}
	if !until.IsZero() {
		text += ", until " + until.UTC().Format(time.RFC3339)
		if !f.now.Before(until) {
			text += " (kept, because the clock has jumped past it)"
		}
	}
	h := status.Hold{Name: status.HoldRequested, Reason: text, Until: until.UTC(), Image: image, By: by, Note: reason}
	if !slices.Contains(p.Holds, h) {
		p.Holds = append(p.Holds, h)
	}
}

// holdIfBusy adds a hold while another operation owns the node.
func (f *facts) holdIfBusy(p *PodPlan) {
	if f.inv.Busy != "" {
		p.Holds = append(p.Holds, status.Hold{Name: status.HoldBusy, Reason: f.inv.Busy, Grain: f.inv.BusyGrain})
	}
}
