// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// keepHalvesAtBoot keeps each pod manifest that would start a release of a set while another pod of the node does not
// get its release: the set is offered later, as a whole.
func (f *facts) keepHalvesAtBoot(views []follow.PodView, steps []BootStep) {
	untilStable(len(steps), func(n int) (changed bool) {
		why := f.lackedAtBoot(steps[n], views, steps)
		if why != "" {
			steps[n].keepAsIs("%s: %s", status.HoldSet, why)
		}
		return why != ""
	})
}

// lackedAtBoot returns what the sets of a step lack; "" if nothing.
func (f *facts) lackedAtBoot(s BootStep, views []follow.PodView, steps []BootStep) string {
	if s.Do != StepWrite {
		return ""
	}
	for _, i := range s.Images {
		is, _ := f.inv.Catalog.Find(i.Target.Repository, i.Target.Digest)
		if _, moves := f.bootTarget(i.Want); !moves {
			continue
		}
		for _, m := range f.inv.Catalog.MembersOf(i.Target.Repository, is) {
			for _, v := range views {
				if !f.getsAtBoot(v, m, steps) {
					return is.Set + ": " + v.File + " does not start with " + m.String()
				}
			}
		}
	}
	return ""
}

// getsAtBoot reports whether a pod starts with a release of a set or a higher one, or does not need it.
func (f *facts) getsAtBoot(v follow.PodView, m release.Reference, steps []BootStep) bool {
	if v.Err != nil {
		return !f.ranIn(v.File, m.Repository)
	}
	at := slices.IndexFunc(steps, func(s BootStep) bool { return s.File == v.File && s.Do == StepWrite })
	for _, w := range v.Wants {
		if w.Ask.Repository != m.Repository {
			continue
		}
		g := f.rec.Good[record.GoodKey(v.File, w.Image.Container)]
		is := release.Release{Digest: g.Running, Tag: f.rec.NameOf(m.Repository, g.Running)}
		if at >= 0 {
			is = targetOf(steps[at], w)
		}
		if !f.isAbove(m, is.Digest, cmp.Or(is.Long, is.Tag)) {
			return false
		}
	}
	return true
}

// targetOf returns the release with which a step starts an image.
func targetOf(s BootStep, w follow.Want) release.Release {
	for _, i := range s.Images {
		if i.Want.Image == w.Image {
			return i.Target
		}
	}
	return release.Release{}
}
