// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"slices"

	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// KeepRollouts has promoted releases keep the rollouts that their channel has for them: those that
// come without one, and those that come with the same span, which would begin anew. All releases of
// a set keep the rollout of the first one that has one.
func (p *Publisher) KeepRollouts(ctx context.Context, to Version, changes []catalog.Change) ([]catalog.Change, error) {
	images := []string{}
	for _, c := range changes {
		images = append(images, c.Image)
	}
	slices.Sort(images)
	pages, err := p.Pages(ctx, to, slices.Compact(images)...)
	if err != nil {
		return nil, err
	}
	running := func(c catalog.Change) *catalog.Rollout {
		is := find(pages[c.Image], c.Release.Tag)
		if is == nil || is.Digest != c.Release.Digest || is.Withdrawn != nil {
			return nil
		}
		return is.Rollout
	}
	ofSet := map[string]*catalog.Rollout{}
	for _, c := range changes {
		if set := c.Release.Set; set != "" && ofSet[set] == nil {
			ofSet[set] = running(c)
		}
	}
	out := slices.Clone(changes)
	for n, c := range out {
		is := running(c)
		if c.Release.Set != "" {
			is = ofSet[c.Release.Set]
		}
		if is != nil && (c.Release.Rollout == nil || c.Release.Rollout.Hours == is.Hours) {
			out[n].Release.Rollout = is
		}
	}
	return out, nil
}
