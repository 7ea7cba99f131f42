// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
)

// Revert has a channel offer what an earlier version offered; 0: the newest one that offered something else. What came
// since is withdrawn, with the earlier release to run instead. What was withdrawn since stays so, and is named;
// rollouts and a freeze stay as they are. Repeated, it does nothing.
func Revert(version uint64, reason string) Verb {
	return func(ctx context.Context, v *View) (Draft, error) {
		now, err := v.Pages(ctx)
		if err != nil {
			return Draft{}, err
		}
		earlier, before, err := v.earlier(ctx, version, offeredOf(now))
		if err != nil {
			return Draft{}, err
		}
		if reason == "" {
			reason = fmt.Sprintf("reverted to version %d", earlier.Version)
		}
		r := reverting{at: v.p.now().UTC(), reason: reason}
		for _, image := range slices.Sorted(maps.Keys(now)) {
			r.page(image, now[image], before[image])
		}
		gone, err := v.ask(ctx, ops.Want{Do: catalog.ActionWithdraw, Changes: r.gone})
		if err != nil {
			return Draft{}, err
		}
		back, err := v.with(gone.Ops).ask(ctx, ops.Want{Do: catalog.ActionPromote, Changes: r.back})
		d := Draft{
			Ops:      append(gone.Ops, back.Ops...),
			Outcomes: slices.Concat(gone.Outcomes, back.Outcomes, r.stays),
		}
		for n := range d.Ops {
			d.Ops[n].Calm, d.Ops[n].Reason = true, reason
		}
		return d, err
	}
}

// offeredOf returns the digests of the releases that pages offer, by member.
func offeredOf(pages map[string]catalog.Page) map[string]digest.Digest {
	out := map[string]digest.Digest{}
	for image, page := range pages {
		for _, r := range page.Releases {
			if r.Withdrawn == nil {
				out[catalog.Member(image, r.Tag)] = r.Digest
			}
		}
	}
	return out
}

// earlier returns the version to go back to, with its pages.
func (v *View) earlier(
	ctx context.Context, version uint64, now map[string]digest.Digest,
) (found Version, pages map[string]catalog.Page, err error) {
	if version > 0 {
		if found, err = v.p.readVersion(ctx, v.Channel, version, v.keys); err == nil {
			pages, err = v.p.Pages(ctx, found)
		}
		return found, pages, err
	}
	isCut, err := v.p.back(ctx, v.Version, func(each Version) (bool, error) {
		isNow := each.Digest == v.Digest || slices.Equal(each.Pages, v.Manifest.Pages)
		if isNow && len(v.Pending) == 0 {
			return true, nil
		}
		all, err := v.p.Pages(ctx, each)
		if err != nil || maps.Equal(offeredOf(all), now) {
			return true, err
		}
		found, pages = each, all
		return false, nil
	})
	switch {
	case err != nil:
		return found, nil, err
	case isCut:
		return found, nil, refuse(KindImage, v.Channel, "the version before %d was pruned", v.Version.Version)
	case found.Digest == "":
		return found, nil, refuse(KindImage, v.Channel, "no earlier version has other releases")
	}
	return found, pages, nil
}

// reverting gathers the changes that have pages offer what they offered before.
type reverting struct {
	at         time.Time
	reason     string
	gone, back []catalog.Change
	stays      []Outcome
}

// page adds the changes of one image.
func (r *reverting) page(image string, now, before catalog.Page) {
	for _, is := range now.Releases {
		was := ops.Find(before, is.Tag)
		c := catalog.Change{Image: image, Release: is}
		switch wasOffered := was != nil && was.Withdrawn == nil; {
		case wasOffered && is.Withdrawn != nil:
			r.stays = append(r.stays, Outcome{
				Image: image, Tag: is.Tag, Digest: is.Digest, Withdrawn: true, Skipped: true,
				Note: "not brought back: withdrawn: " + is.Withdrawn.Reason,
			})
		case wasOffered && (is.Set != was.Set || !slices.Equal(is.Members, was.Members)):
			c.Release = *was
			if is.Rollout != nil && is.Rollout.Paused != nil {
				c.Release.Rollout = is.Rollout
			}
			r.back = append(r.back, c)
		case !wasOffered && is.Withdrawn == nil && !offers(before, is.Digest):
			r.withdraw(c, was, before)
		}
	}
	for _, was := range before.Releases { // what newer ones have pushed off the page
		if was.Withdrawn == nil && ops.Find(now, was.Tag) == nil && ops.WithdrawnAs(now, was.Tag, was.Digest) == nil {
			r.back = append(r.back, catalog.Change{Image: image, Release: was})
		}
	}
}

// withdraw has what came since be withdrawn.
func (r *reverting) withdraw(c catalog.Change, was *catalog.Release, before catalog.Page) {
	w := catalog.Withdrawal{At: r.at, Reason: r.reason}
	if was != nil {
		w.Reason, w.To = was.Withdrawn.Reason, was.Withdrawn.To
	} else if top := ops.Newest(before); top != nil {
		w.To = top.Tag
	}
	c.Release.Withdrawn = &w
	r.gone = append(r.gone, c)
}

// offers reports whether a page offers a digest, under any tag: nodes run digests.
func offers(page catalog.Page, d digest.Digest) bool {
	return slices.ContainsFunc(page.Releases, func(r catalog.Release) bool { return r.Digest == d && r.Withdrawn == nil })
}
