// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// holds adds what persons and the configuration hold a pod back with.
func (d podPlanner) holds(p *PodPlan) {
	if h, ok := d.rec.Holds[record.Everything]; ok && h.Stands(d.now) {
		p.hold(record.Everything, status.ByPerson, h.Reason, h.Until)
	}
	for _, i := range p.Images {
		repository := i.Want.Ask.Repository
		if h, ok := d.rec.Holds[repository]; ok && h.Stands(d.now) {
			p.hold(repository, status.ByPerson, h.Reason, h.Until)
		}
		rule := d.policy.RuleFor(repository)
		if rule.Hold != "" && (record.PersonHold{Until: rule.HoldUntil}).Stands(d.now) {
			p.hold(repository, status.ByConfiguration, rule.Hold+" (configuration)", rule.HoldUntil)
		}
	}
}

func (p *PodPlan) hold(image, by, reason string, until time.Time) {
	text := image
	if image == record.Everything {
		text = "everything"
	}
	if reason != "" {
		text += ": " + reason
	}
	if !until.IsZero() {
		text += ", until " + until.UTC().Format(time.RFC3339)
	}
	h := status.Hold{Name: status.HoldAsked, Reason: text, Until: until.UTC(), Image: image, By: by}
	if !slices.Contains(p.Holds, h) {
		p.Holds = append(p.Holds, h)
	}
}
