// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
	"github.com/kubic-project/image-update-agent/tags"
)

// Selection says which releases of a channel are promoted.
type Selection struct {
	Images []string // REPOSITORY, REPOSITORY:TAG, or their ends; without a tag the newest
	Set    string   // all releases of a set
	All    bool     // the newest release of each image
	// Withdrawn selects what the other channel has withdrawn, too; only with tags.
	Withdrawn bool
	// Soaked is how long the channel must have offered a release without a break; 0: any time.
	Soaked time.Duration
}

// Promotion is what one channel takes over from another.
type Promotion struct {
	Selection

	Rollout *catalog.Rollout // nil: at once
	// Keep lets releases keep the rollout that is under way if they come without one, or with the same span.
	Keep bool
}

// Promote lists releases of a channel that it offers in another one. What that one has withdrawn is skipped, or refused
// if it was named with its tag or is part of the set. A set comes as a whole or not at all.
func Promote(from *View, o Promotion) Verb {
	there := sync.Map{} // images that were found in their registries
	return func(ctx context.Context, to *View) (Draft, error) {
		s := &selecting{from: from, to: to}
		if err := s.choose(ctx, o.Selection); err != nil {
			return Draft{}, err
		}
		if err := from.p.areThere(ctx, s.changes, &there); err != nil {
			return Draft{}, err
		}
		for n := range s.changes {
			s.changes[n].Release.Rollout = o.Rollout
			s.changes[n].Release.Advisory = s.advisory(s.changes[n])
		}
		if o.Keep {
			s.keepRollouts()
		}
		d, err := to.ask(ctx, ops.Want{Do: catalog.ActionPromote, Changes: s.changes, Again: o.Withdrawn})
		d.Outcomes = append(d.Outcomes, s.skipped...)
		return d, err
	}
}

// advisory returns what a promoted release is good for in the other channel, whose nodes skip the builds between the
// release below and this one.
func (s *selecting) advisory(c catalog.Change) *catalog.Advisory {
	is, err := tags.Parse(c.Release.Tag)
	if err != nil {
		return c.Release.Advisory
	}
	for _, r := range s.target[c.Image].Releases { // the newest first
		if below, err := tags.Parse(r.Tag); err == nil && tags.InLine(below, is) && tags.Compare(below, is) < 0 {
			brought := catalog.Between(s.pages[c.Image].Releases, r.Digest, c.Release.Digest, tags.Scheme{})
			return c.Release.Advisory.Skipping(brought)
		}
	}
	return c.Release.Advisory
}

// areThere checks that images are still in their registries, each once.
func (p *Publisher) areThere(ctx context.Context, changes []catalog.Change, there *sync.Map) error {
	return each(ctx, p.jobs, changes, func(ctx context.Context, _ int, c catalog.Change) error {
		name := c.Image + "@" + c.Release.Digest.String()
		if _, known := there.Load(name); known {
			return nil
		}
		p.step("checking %s", c.Member())
		_, err := p.registry.Head(ctx, c.Image, c.Release.Digest.String())
		if errors.Is(err, release.ErrNotFound) {
			return refuse(KindTag, c.Member(), "its registry has no %s any more", c.Release.Digest)
		}
		there.Store(name, err == nil)
		return err
	})
}

// selecting is the choice of releases that are promoted from one channel to another one.
type selecting struct {
	from, to      *View
	pages, target map[string]catalog.Page // of both channels
	soak          soak
	changes       []catalog.Change
	skipped       []Outcome
}

func (s *selecting) choose(ctx context.Context, o Selection) (err error) {
	images := s.from.named(o.Images)
	if o.All {
		images = nil // all
	}
	if err = s.read(ctx, images...); err == nil {
		s.soak, err = s.from.soakOf(ctx, o.Soaked)
	}
	switch {
	case err != nil:
	case o.Set != "":
		err = s.set(ctx, o.Set)
	case o.All:
		err = s.all(ctx)
	default:
		err = s.images(ctx, o)
	}
	return err
}

// read reads pages of both channels.
func (s *selecting) read(ctx context.Context, images ...string) (err error) {
	if s.pages, err = s.from.Pages(ctx, images...); err == nil {
		s.target, err = s.to.Pages(ctx, images...)
	}
	return err
}

// readSets reads the pages of the members of sets, and of the images that were selected.
func (s *selecting) readSets(ctx context.Context, all map[string]*set) error {
	images := imagesOf(catalog.Op{Changes: s.changes})
	for _, each := range all {
		for member := range each.members {
			image, _ := catalog.SplitMember(member)
			images = append(images, image)
		}
	}
	return s.read(ctx, images...)
}

// set selects all members of a set.
func (s *selecting) set(ctx context.Context, name string) error {
	all, err := s.from.setsOf(ctx, name)
	if err != nil {
		return err
	}
	whole := all[name]
	if len(whole.members) == 0 {
		return s.from.noSet(ctx, name)
	}
	if err := s.readSets(ctx, all); err != nil {
		return err
	}
	if err := s.lacks(whole); err != nil {
		return err
	}
	s.changes = whole.changes()
	return nil
}

// all selects the newest release of each image, and the other members of their sets.
func (s *selecting) all(ctx context.Context) error {
	chosen := map[string]bool{}
	var names []string
	for _, image := range slices.Sorted(maps.Keys(s.pages)) {
		r := s.soak.newest(s.pages[image])
		if r == nil {
			s.skipYoung(image)
			continue
		}
		c := catalog.Change{Image: image, Release: *r}
		switch why := s.withdrawn(c); {
		case why != "":
			s.skip(c, why)
		case r.Set == "":
			s.changes = append(s.changes, c)
		default:
			chosen[c.Member()] = true
			names = append(names, r.Set)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	names = slices.Compact(names)
	all, err := s.from.setsOf(ctx, names...)
	if err != nil {
		return err
	}
	for _, name := range names {
		lacks := s.lacks(all[name])
		for _, c := range all[name].changes() {
			if lacks == nil {
				s.changes = append(s.changes, c)
			} else if chosen[c.Member()] {
				s.skip(c, lacks.Error())
			}
		}
	}
	s.changes = s.once(s.changes)
	return nil
}

// skipYoung names the newest release of an image that is offered, and not long enough.
func (s *selecting) skipYoung(image string) {
	if r := ops.Newest(s.pages[image]); r != nil {
		c := catalog.Change{Image: image, Release: *r}
		s.skip(c, s.soak.lacks(s.from.Channel, c))
	}
}

// once leaves one change for a release that is a member of several sets: in the set that the channel gives it.
func (s *selecting) once(changes []catalog.Change) []catalog.Change {
	at := map[string]int{} // by member
	var out []catalog.Change
	for _, c := range changes {
		n, twice := at[c.Member()]
		switch {
		case !twice:
			at[c.Member()], out = len(out), append(out, c)
		case s.ownSet(c.Member()) == c.Release.Set:
			out[n] = c
		}
	}
	return out
}

// ownSet returns the set that the channel gives a release: the last one that it was added to.
func (s *selecting) ownSet(member string) string {
	image, tag := catalog.SplitMember(member)
	if r := ops.Find(s.pages[image], tag); r != nil {
		return r.Set
	}
	return ""
}

// images selects the releases that words name.
func (s *selecting) images(ctx context.Context, from Selection) error {
	chosen := map[string]bool{}
	err := eachWord(from.Images, func(word string) error {
		c, hasTag, err := s.from.find(ctx, word, false)
		if err != nil {
			return s.inOther(word, err)
		}
		if r := s.soak.newest(s.pages[c.Image]); !hasTag && r != nil {
			c.Release = *r
		}
		why, err := s.check(c, from.Withdrawn)
		switch {
		case err != nil:
			return err
		case from.Withdrawn && !hasTag:
			return refuse(KindInput, word, "the tag is missing: --withdrawn takes REPOSITORY:TAG only")
		case why != "" && hasTag && !from.Withdrawn:
			return refuse(KindAgain, c.Member(), "%s", why)
		case why != "" && !from.Withdrawn:
			s.skip(c, why)
			return nil
		}
		c.Release.Withdrawn = nil
		chosen[c.Member()] = true
		s.changes = append(s.changes, c)
		return nil
	})
	if err != nil {
		return err
	}
	return s.whole(ctx, chosen)
}

// check refuses a release that the channel has withdrawn, or has not offered long enough. It returns why the other
// channel has withdrawn it; "": it has not.
func (s *selecting) check(c catalog.Change, withdrawn bool) (why string, err error) {
	if why := s.soak.lacks(s.from.Channel, c); why != "" {
		return "", refuse(KindSoak, c.Member(), "%s", why)
	}
	why = ops.WithdrawnFrom(s.from.Channel, s.pages[c.Image], c.Release)
	if why != "" && (!withdrawn || s.from.Channel != s.to.Channel) {
		return "", refuse(KindWithdrawn, c.Member(), "%s", why)
	}
	c.Release.Withdrawn = nil
	return ops.WithdrawnFrom(s.to.Channel, s.target[c.Image], c.Release), nil
}

// inOther says that only the other channel lists an image: the channels were given in the wrong order.
func (s *selecting) inOther(word string, err error) error {
	name, _, _, splitErr := splitWord(word)
	e, ok := errors.AsType[*Error](err)
	if splitErr != nil || !ok || e.Kind != KindImage {
		return err
	}
	_, here := s.from.image(name)
	if _, there := s.to.image(name); here != nil && there == nil {
		e.Text += fmt.Sprintf(", but %s does: FROM comes before TO", s.to.Channel)
	}
	return e
}

// whole refuses a part of a set. What was found in a registry gets the set that names it.
func (s *selecting) whole(ctx context.Context, chosen map[string]bool) error {
	names := setsIn(s.changes)
	if len(names) == 0 {
		return nil
	}
	all, err := s.from.setsOf(ctx, names...)
	if err == nil {
		err = s.readSets(ctx, all)
	}
	if err != nil {
		return err
	}
	of := map[string]*set{} // by member
	for _, c := range s.changes {
		if c.Release.Set == "" {
			continue
		}
		whole := all[c.Release.Set]
		if rest := s.notIn(whole, chosen); len(rest) > 0 {
			return refuse(KindSet, c.Member(), "it is in set %q together with %s", c.Release.Set, some(rest))
		}
		for member := range whole.members {
			if _, is := of[member]; !is || s.ownSet(member) == whole.name {
				of[member] = whole
			}
		}
	}
	for n := range s.changes {
		c := &s.changes[n]
		if whole, is := of[c.Member()]; is {
			c.Release.Set, c.Release.Members = whole.name, whole.names()
		}
	}
	return nil
}

// notIn returns the members of a set that are neither chosen nor offered by the target.
func (s *selecting) notIn(whole *set, chosen map[string]bool) []string {
	return slices.DeleteFunc(whole.names(), func(member string) bool {
		image, tag := catalog.SplitMember(member)
		there := ops.Find(s.target[image], tag)
		return chosen[member] || there != nil && there.Withdrawn == nil
	})
}

// lacks returns why a set cannot be promoted as a whole; nil: it can.
func (s *selecting) lacks(whole *set) error {
	if missing := whole.missing(); len(missing) > 0 {
		return refuse(KindSet, whole.name,
			"channel %s does not list %s of this set any more, nor does a version that can be read",
			s.from.Channel, some(missing))
	}
	for _, c := range whole.changes() {
		if why := s.withdrawn(c); why != "" {
			return refuse(KindWithdrawn, whole.name, "%s of this set is %s", c.Member(), why)
		}
		if why := s.soak.lacks(s.from.Channel, c); why != "" {
			return refuse(KindSoak, whole.name, "%s of this set: %s", c.Member(), why)
		}
	}
	if whole.isCut {
		return refuse(KindSet, whole.name,
			"its releases are not known: older versions of %s cannot be read", s.from.Channel)
	}
	return nil
}

// withdrawn returns that one of the channels has withdrawn a release; "": no channel has.
func (s *selecting) withdrawn(c catalog.Change) string {
	why := ops.WithdrawnFrom(s.from.Channel, s.pages[c.Image], c.Release)
	return cmp.Or(why, ops.WithdrawnFrom(s.to.Channel, s.target[c.Image], c.Release))
}

func (s *selecting) skip(c catalog.Change, why string) {
	s.skipped = append(s.skipped, Outcome{
		Image: c.Image, Tag: c.Release.Tag, Digest: c.Release.Digest, Skipped: true, Note: "skipped: " + why,
	})
}

// keepRollouts has promoted releases keep the rollouts that their channel has for them: those that come without one,
// and those that come with the same span, which would begin anew. All releases of a set keep the rollout of the first
// one that has one.
func (s *selecting) keepRollouts() {
	running := func(c catalog.Change) *catalog.Rollout {
		is := ops.Find(s.target[c.Image], c.Release.Tag)
		if is == nil || is.Digest != c.Release.Digest || is.Withdrawn != nil {
			return nil
		}
		return is.Rollout
	}
	ofSet := map[string]*catalog.Rollout{}
	for _, c := range s.changes {
		if set := c.Release.Set; set != "" && ofSet[set] == nil {
			ofSet[set] = running(c)
		}
	}
	for n, c := range s.changes {
		is := running(c)
		if c.Release.Set != "" {
			is = ofSet[c.Release.Set]
		}
		if is != nil && (c.Release.Rollout == nil || c.Release.Rollout.Hours == is.Hours) {
			s.changes[n].Release.Rollout = is
		}
	}
}

// soak says which releases a channel has offered long enough. The zero value says that all are.
type soak struct {
	since  map[string]time.Time // by member
	begins time.Time            // of the log: what it does not name was offered before
	until  time.Time            // the latest time to be offered since; zero: any is
	span   time.Duration
}

// soakOf reads since when a channel offers its releases, if that counts.
func (v *View) soakOf(ctx context.Context, span time.Duration) (soak, error) {
	if span <= 0 {
		return soak{}, nil
	}
	log, err := v.log(ctx)
	s := soak{since: standing(log), begins: v.p.now(), until: v.p.now().Add(-span), span: span}
	if len(log) > 0 {
		s.begins = cmp.Or(log[0].Published, log[0].At)
	}
	return s, err
}

// lacks says that a channel has not offered a release long enough; "": it has.
func (s soak) lacks(channel string, c catalog.Change) string {
	since, ok := s.since[c.Member()]
	if !ok {
		since = s.begins
	}
	if s.until.IsZero() || !since.After(s.until) {
		return ""
	}
	return fmt.Sprintf("channel %s has offered it since %s only, want %g hours",
		channel, since.Format(time.RFC3339), s.span.Hours())
}

// newest returns the newest release of a page that is offered long enough; nil if there is none.
func (s soak) newest(page catalog.Page) *catalog.Release {
	return ops.First(page, func(r catalog.Release) bool {
		return r.Withdrawn == nil && s.lacks("", catalog.Change{Image: page.Image, Release: r}) == ""
	})
}
