// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// addHolds adds the holds of persons and of the configuration.
func (pp podPlanner) addHolds(p *PodPlan) {
	if h, ok := pp.rec.Holds[record.AllImages]; ok && h.IsActive(pp.now) {
		p.addHold(record.AllImages, status.ByPerson, h.Reason, h.Until)
	}
	for _, i := range p.Images {
		repository := i.Want.Ask.Repository
		if h, ok := pp.rec.Holds[repository]; ok && h.IsActive(pp.now) {
			p.addHold(repository, status.ByPerson, h.Reason, h.Until)
		}
		rule := pp.policy.RuleFor(repository)
		if rule.Hold != "" && (record.PersonHold{Until: rule.HoldUntil}).IsActive(pp.now) {
			p.addHold(repository, status.ByConfiguration, rule.Hold+" (configuration)", rule.HoldUntil)
		}
	}
}

func (p *PodPlan) addHold(image, by, reason string, until time.Time) {
	text := image
	if image == record.AllImages {
		text = "everything"
	}
	if reason != "" {
		text += ": " + reason
	}
	if !until.IsZero() {
		text += ", until " + until.UTC().Format(time.RFC3339)
	}
	h := status.Hold{Name: status.HoldRequested, Reason: text, Until: until.UTC(), Image: image, By: by}
	if !slices.Contains(p.Holds, h) {
		p.Holds = append(p.Holds, h)
	}
}

// holdIfBusy adds a hold while another operation owns the node.
func (pp podPlanner) holdIfBusy(p *PodPlan) {
	if pp.inv.Busy != "" {
		p.Holds = append(p.Holds, status.Hold{Name: status.HoldBusy, Reason: pp.inv.Busy, Grain: pp.inv.BusyGrain})
	}
}
