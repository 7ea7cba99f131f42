// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Downs returns the followed containers that do not run: the ones that may still start, or the others.
func (p *PodPlan) Downs(starting bool) []status.Reason {
	var out []status.Reason
	for _, i := range p.Images {
		if i.Down != nil && i.Down.Starting == starting {
			out = append(out, i.Down.AsReason(p.File, i.Want.Image.Container, i.Want.Ask.Repository))
		}
	}
	return out
}

// IsDown reports whether a followed container does not run.
func (p Plan) IsDown() bool {
	return slices.ContainsFunc(p.Pods, func(pod PodPlan) bool {
		return slices.ContainsFunc(pod.Images, func(i ImagePlan) bool { return i.Down != nil })
	})
}

// Missing returns since when followed containers are absent from CRI.
func (p Plan) Missing() map[string]time.Time {
	out := map[string]time.Time{}
	for _, pod := range p.Pods {
		for _, i := range pod.Images {
			if i.Down != nil && i.Down.Absent {
				out[record.GoodKey(pod.File, i.Want.Image.Container)] = i.Down.Since
			}
		}
	}
	return out
}
