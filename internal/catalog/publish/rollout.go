// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
)

// Steer says how a rollout changes.
type Steer struct {
	Pause, Resume bool
	Now           bool // end it: all nodes at once
	Hours         int  // its new length; 0: as it is
}

// Roll changes rollouts that are under way: those of some images or of a set, or all. Each node keeps its place.
func Roll(s Selection, how Steer) Verb {
	return func(ctx context.Context, v *View) (Draft, error) {
		all, err := v.Rolling(ctx, s)
		if err != nil {
			return Draft{}, err
		}
		d, err := v.ask(ctx, ops.Want{Do: catalog.ActionPromote, Changes: steered(all, how, v.p.now())})
		for n := range d.Ops {
			d.Ops[n].Calm = how.Pause
		}
		return d, err
	}
}

// steered returns the changes that have rollouts change so.
func steered(rolling []catalog.Change, s Steer, now time.Time) []catalog.Change {
	now = now.UTC().Truncate(time.Second)
	out := slices.Clone(rolling)
	for n := range out {
		is := *out[n].Release.Rollout
		next := is
		if s.Hours > 0 {
			next = is.Resume(now, s.Hours)
		}
		switch {
		case s.Resume:
			next = is.Resume(now, cmp.Or(s.Hours, is.Hours))
		case s.Pause, is.Paused != nil:
			next = next.Pause(now)
		}
		out[n].Release.Rollout = &next
		if s.Now {
			out[n].Release.Rollout = nil
		}
	}
	return out
}

// Rolling returns the releases of a channel whose rollout is not over: of some images or of a set; of all with neither
// named. A release of a set comes with all of the set, which has one rollout.
func (v *View) Rolling(ctx context.Context, s Selection) ([]catalog.Change, error) {
	pages, err := v.Pages(ctx)
	if err != nil {
		return nil, err
	}
	var all []catalog.Change
	for _, image := range slices.Sorted(maps.Keys(pages)) {
		for _, r := range pages[image].Releases {
			if o := r.Rollout; r.Withdrawn == nil && o != nil && (o.Paused != nil || o.Share(v.p.now()) < 100) {
				all = append(all, catalog.Change{Image: image, Release: r})
			}
		}
	}
	if len(s.Images) == 0 && s.Set == "" {
		return all, nil
	}
	members, sets := map[string]bool{}, map[string]bool{s.Set: true}
	for _, word := range s.Images {
		c, err := v.rollingImage(all, word)
		if err != nil {
			return nil, err
		}
		members[c.Member()], sets[c.Release.Set] = true, true
	}
	delete(sets, "")
	all = slices.DeleteFunc(all, func(c catalog.Change) bool { return !members[c.Member()] && !sets[c.Release.Set] })
	if len(all) == 0 {
		return nil, refuse(KindImage, s.Set, "no release of this set has a rollout under way in %s", v.Channel)
	}
	return all, nil
}

// rollingImage returns the release that a word means: REPOSITORY:TAG, or REPOSITORY for the newest with a rollout.
func (v *View) rollingImage(all []catalog.Change, word string) (catalog.Change, error) {
	name, tag, _, err := splitWord(word)
	if err != nil {
		return catalog.Change{}, err
	}
	image, err := v.image(name)
	if err != nil {
		return catalog.Change{}, err
	}
	at := slices.IndexFunc(all, func(c catalog.Change) bool {
		return c.Image == image && c.Release.Tag == cmp.Or(tag, c.Release.Tag)
	})
	if at < 0 {
		return catalog.Change{}, refuse(KindImage, word, "it has no rollout under way in %s", v.Channel)
	}
	return all[at], nil
}
