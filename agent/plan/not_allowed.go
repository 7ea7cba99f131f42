// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// Images calls f with each image of the pods and of the configuration; file is its pod
// manifest.
func (p Plan) Images(f func(file string, i ImagePlan)) {
	for _, pod := range p.Pods {
		for _, i := range pod.Images {
			if i.Want.Ask.Repository != "" {
				f(pod.File, i)
			}
		}
	}
	for _, i := range p.Tracked {
		f("", i)
	}
}

// NotAllowed returns the newer tags that the configuration refuses, sorted and without
// duplicates.
func (p Plan) NotAllowed() []status.NotAllowed {
	out := []status.NotAllowed{}
	p.Images(func(_ string, i ImagePlan) {
		for _, no := range i.NotAllowed {
			out = append(out, status.NotAllowed{Image: i.Offer.Repository, Tag: no.Tag, Rule: no.Rule, Key: no.Key})
		}
	})
	slices.SortFunc(out, func(x, y status.NotAllowed) int {
		return strings.Compare(x.Image+" "+x.Key+" "+x.Tag, y.Image+" "+y.Key+" "+y.Tag)
	})
	return slices.Compact(out)
}
