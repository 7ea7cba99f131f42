// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// awaited is what is newer and is only waited for, and why.
func awaited(p plan.Plan) []status.Reason {
	var out []status.Reason
	p.Images(func(file string, i plan.ImagePlan) {
		for _, no := range i.Offer.Refused {
			if no.Holds {
				r := status.Reason{
					Kind: status.KindAwait, PodManifest: file, Image: i.Offer.Repository, Tag: no.Tag, Rule: no.Rule, Since: no.Since,
					RetryAt: no.RetryAt, Text: no.Rule + ": " + i.Offer.Repository + ":" + no.Tag + ": " + no.Reason,
				}
				if file != "" {
					r.Text = file + ": " + r.Text
				}
				out = append(out, r)
			}
		}
	})
	return out
}

// nothingToDo is why nothing is offered on a node that is current.
func nothingToDo(p plan.Plan, rec *record.Record) []status.Reason {
	var back, newer, only []status.Reason
	for _, pod := range p.Pods {
		if b := rec.RolledBack(pod.File); b != nil {
			back = append(
				back, status.Reason{Kind: status.KindRolledBack, PodManifest: pod.File, Since: b.At, Text: b.Sentence(pod.File)},
			)
		}
	}
	for _, n := range p.NotAllowed() {
		newer = append(
			newer, status.Listed(status.Reason{Kind: status.KindNotAllowed, Image: n.Image, Tag: n.Tag, Rule: n.Rule}),
		)
	}
	p.Images(func(_ string, i plan.ImagePlan) {
		if i.RebuildsOnly != nil {
			only = append(
				only, status.Listed(
					status.Reason{Kind: status.KindRebuildsOnly, Image: i.Offer.Repository, Tag: i.RebuildsOnly.Tag},
				),
			)
		}
	})
	why := slices.Concat(back, newer, status.Sorted(only))
	if len(why) == 0 {
		return []status.Reason{{Kind: status.KindNone, Text: "every followed image is the newest that policy allows"}}
	}
	return append([]status.Reason{{Kind: status.KindNone, Text: "nothing to apply"}}, why...)
}
