// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
)

// Settle publishes what waits, and changes no more.
func Settle(context.Context, *View) (Draft, error) { return Draft{}, nil }

// Refresh sets when a channel expires; zero: never. It creates a missing channel if that is allowed.
func Refresh(expires time.Time) Verb {
	return func(context.Context, *View) (Draft, error) {
		return Draft{Ops: []catalog.Op{{Do: catalog.ActionRefresh, Expires: expires}}}, nil
	}
}

// Freeze makes publishers refuse add and promote until a time; zero: the channel is not frozen any more.
func Freeze(until time.Time) Verb {
	return func(ctx context.Context, v *View) (Draft, error) {
		is, err := v.content(ctx, []string{}...)
		isAsItIs := until.Equal(is.Frozen) || until.IsZero() && !ops.IsFrozen(is.Times, v.p.now())
		if err != nil || isAsItIs {
			return Draft{}, err
		}
		return Draft{Ops: []catalog.Op{{Do: catalog.ActionFreeze, Until: until}}}, nil
	}
}

// Noted has changes of the advisories of releases; nil changes nothing.
type Noted struct {
	Note     *string
	Fixes    *[]string
	Severity *catalog.Severity
}

// Of returns an advisory with the changes; nil is none.
func (n Noted) Of(is *catalog.Advisory) *catalog.Advisory {
	if n == (Noted{}) {
		return is
	}
	out := catalog.Advisory{}
	if is != nil {
		out = *is
	}
	if n.Note != nil {
		out.Note = *n.Note
	}
	if n.Fixes != nil {
		out.Fixes = *n.Fixes
	}
	if n.Severity != nil {
		out.Severity = *n.Severity
	}
	return &out
}

// Note changes the advisories of listed releases: of each under all tags that the channel lists for its digest.
func Note(words []string, what Noted) Verb {
	return func(ctx context.Context, v *View) (Draft, error) {
		selected, err := v.tagged(ctx, words, false)
		if err != nil {
			return Draft{}, err
		}
		pages, err := v.Pages(ctx, imagesOf(catalog.Op{Changes: selected})...)
		if err != nil {
			return Draft{}, err
		}
		selected = ops.WithSameDigest(selected, pages)
		for n, c := range selected {
			selected[n].Release = catalog.Release{
				Tag: c.Release.Tag, Digest: c.Release.Digest, Advisory: what.Of(c.Release.Advisory),
			}
		}
		return v.ask(ctx, ops.Want{Do: catalog.ActionNote, Changes: selected})
	}
}

// Ask asks for these changes.
func Ask(w ops.Want) Verb {
	return func(ctx context.Context, v *View) (Draft, error) {
		w.Changes = slices.Clone(w.Changes)
		return v.ask(ctx, w)
	}
}

// ask drafts what somebody wants.
func (v *View) ask(ctx context.Context, w ops.Want) (Draft, error) {
	images, sets := imagesOf(catalog.Op{Changes: w.Changes}), setsIn(w.Changes)
	isOfSets := w.Do == catalog.ActionAdd && len(sets) > 0
	if isOfSets {
		more, err := v.imagesOfSets(ctx, sets...)
		if err != nil {
			return Draft{}, err
		}
		images = append(images, more...)
		if more == nil {
			images = nil
		}
	}
	state, err := v.content(ctx, images...)
	if err == nil && isOfSets {
		w.Former, err = v.former(ctx, sets, state)
	}
	if err != nil {
		return Draft{}, err
	}
	d, err := ops.Ask(state, v.Channel, w)
	if refused, ok := errors.AsType[*ops.Refused](err); ok {
		kind := KindWithdrawn
		if refused.Again {
			kind = KindAgain
		}
		return Draft{}, refuse(kind, refused.Change.Member(), "%s", refused.Why)
	}
	if err != nil {
		return Draft{}, refuse(KindDigest, v.Channel, "%v", err)
	}
	return d, nil
}

// setsIn returns the sets of changes, sorted.
func setsIn(changes []catalog.Change) []string {
	names := map[string]bool{}
	for _, c := range changes {
		names[c.Release.Set] = true
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}

// former returns, by set, the members of sets that are added to and that no page names: all their releases are in later
// sets now, and only the log still has the earlier ones. A set has ended, and begins anew, when no page lists any
// member of it.
func (v *View) former(ctx context.Context, sets []string, state ops.State) (map[string][]string, error) {
	out := map[string][]string{}
	for _, name := range sets {
		out[name] = nil
	}
	for _, name := range setNames(state.Pages) {
		delete(out, name)
	}
	if len(out) == 0 {
		return nil, nil
	}
	log, err := v.log(ctx)
	if err != nil {
		return nil, err
	}
	isListed := map[string]bool{} // by set
	for _, e := range log {
		for _, c := range e.Changes {
			set := c.Release.Set
			members, isAsked := out[set]
			if !isAsked || e.Do == catalog.ActionWithdraw {
				continue
			}
			is := ops.Find(state.Pages[c.Image], c.Release.Tag)
			if is != nil && is.Digest != c.Release.Digest {
				continue
			}
			out[set], isListed[set] = append(members, c.Member()), isListed[set] || is != nil
		}
	}
	for set := range out {
		if !isListed[set] {
			delete(out, set)
		}
	}
	return out, nil
}

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

// Withdrawal selects releases of a channel that nodes must not run any more, and says why.
type Withdrawal struct {
	Images []string // REPOSITORY:TAG, or the ends of them, also with the digest
	Set    string   // all releases of a set, in place of Images
	Reason string
	// Instead are the tags to run instead: TAG if all releases are of one image, otherwise REPOSITORY:TAG.
	Instead []string
}

// Withdraw marks releases as withdrawn: each with all tags that the channel lists for its digest. A release that fell
// off its page is found in earlier versions; a release that was never listed needs its digest.
func Withdraw(w Withdrawal) Verb {
	return func(ctx context.Context, v *View) (Draft, error) {
		selected, err := v.tagged(ctx, w.Images, true)
		if w.Set != "" {
			selected, err = v.withdrawnSet(ctx, w.Set)
		}
		if err != nil {
			return Draft{}, err
		}
		pages, err := v.Pages(ctx, imagesOf(catalog.Op{Changes: selected})...)
		if err != nil {
			return Draft{}, err
		}
		selected = ops.WithSameDigest(selected, pages)
		instead, err := v.instead(pages, selected, w.Instead)
		if err != nil {
			return Draft{}, err
		}
		var changes []catalog.Change
		for _, c := range selected {
			is, to := c.Release.Withdrawn, instead[c.Image]
			if is != nil && (w.Set != "" || is.Reason == w.Reason && is.To == to) {
				continue
			}
			c.Release.Withdrawn = &catalog.Withdrawal{At: v.p.now().UTC(), Reason: w.Reason, To: to}
			changes = append(changes, c)
		}
		return v.ask(ctx, ops.Want{Do: catalog.ActionWithdraw, Changes: changes})
	}
}

// tagged returns the releases that words with tags name.
func (v *View) tagged(ctx context.Context, words []string, unlisted bool) (out []catalog.Change, err error) {
	err = eachWord(words, func(word string) error {
		c, hasTag, err := v.find(ctx, word, unlisted)
		if err == nil && !hasTag {
			e := refuse(KindInput, word, "the tag is missing: want IMAGE:TAG")
			e.Near = []string{word + ":" + c.Release.Tag}
			return e
		}
		if err == nil {
			out = append(out, c)
		}
		return err
	})
	return out, err
}

// withdrawnSet returns all releases of a set. Those that no version lists are taken as their registries have them.
func (v *View) withdrawnSet(ctx context.Context, name string) ([]catalog.Change, error) {
	all, err := v.setsOf(ctx, name)
	if err != nil {
		return nil, err
	}
	whole := all[name]
	if len(whole.members) == 0 {
		return nil, v.noSet(ctx, name)
	}
	for _, member := range whole.missing() {
		image, tag := catalog.SplitMember(member)
		d, err := v.p.registry.Head(ctx, image, tag)
		if errors.Is(err, release.ErrNotFound) {
			return nil, refuse(KindSet, name, "%s of this set is not listed by %s any more, and its registry does not have it",
				member, v.Channel)
		}
		if err != nil {
			return nil, err
		}
		whole.members[member] = &catalog.Release{Tag: tag, Digest: d}
	}
	return whole.changes(), nil
}

// instead returns the replacements by image. Each is offered, and stays so.
func (v *View) instead(
	pages map[string]catalog.Page, selected []catalog.Change, words []string,
) (map[string]string, error) {
	out, images := map[string]string{}, map[string]bool{}
	for _, c := range selected {
		images[c.Image] = true
	}
	for _, word := range words {
		image, tag := catalog.SplitMember(word)
		switch {
		case tag != "" && !strings.Contains(tag, "/"):
			var err error
			if image, err = v.image(image); err != nil {
				return nil, err
			}
		case len(images) != 1:
			return nil, refuse(KindInput, word, "for several images, want REPOSITORY:TAG")
		default:
			image, tag = selected[0].Image, word
		}
		member, is := catalog.Member(image, tag), ops.Find(pages[image], tag)
		isGone := slices.ContainsFunc(selected, func(c catalog.Change) bool { return c.Member() == member })
		switch {
		case !images[image]:
			return nil, refuse(KindInput, member, "no release of this image is withdrawn here")
		case out[image] != "" && out[image] != tag:
			return nil, refuse(KindInput, member, "--instead names %s already", out[image])
		case isGone:
			return nil, refuse(KindInput, member, "a withdrawn release cannot replace itself")
		case is == nil:
			return nil, notListed(v.Version, pages[image], member)
		case is.Withdrawn != nil:
			return nil, refuse(KindWithdrawn, member, "withdrawn itself: %s", is.Withdrawn.Reason)
		}
		out[image] = tag
	}
	return out, nil
}

// Revert makes a channel offer what an earlier version offered; 0: the newest one that offered something else. What
// came since is withdrawn, with the earlier release to run instead. What was withdrawn since stays so, and is named;
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
