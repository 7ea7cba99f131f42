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

// Selected are the releases that a selection means, each with all members of its set, and those that
// are left out, with the reason.
type Selected struct {
	Changes []catalog.Change
	Skipped []Outcome
}

// selecting is the state of Select.
type selecting struct {
	p             *Publisher
	from, to      Version
	pages, target map[string]catalog.Page // of both channels
	soak          soak
	out           Selected
}

// Select returns releases of channel from that it offers, to be promoted to channel to. What to has
// withdrawn is skipped, or refused where it was named with its tag or is a part of the set. A set
// comes as a whole, or not.
func (p *Publisher) Select(ctx context.Context, from, to Version, s Selection) (Selected, error) {
	sel := &selecting{p: p, from: from, to: to}
	err := sel.read(ctx, s.pages(from)...)
	if err == nil {
		sel.soak, err = p.soakOf(ctx, from, s.Soaked)
	}
	switch {
	case err != nil:
	case s.Set != "":
		err = sel.set(ctx, s.Set)
	case s.All:
		err = sel.all(ctx)
	default:
		err = sel.images(ctx, s)
	}
	return sel.out, err
}

// pages returns the images whose pages a selection needs; nil: all. A word that names no image is refused later.
func (s Selection) pages(from Version) []string {
	if s.Set != "" || s.All {
		return nil
	}
	images := []string{}
	for _, word := range s.Images {
		name, _, _, err := splitWord(word)
		if err != nil {
			continue
		}
		if image, err := FindImage(from, name); err == nil {
			images = append(images, image)
		}
	}
	slices.Sort(images)
	return slices.Compact(images)
}

// eachWord calls a function with each word. Its error names all words that are wrong.
func eachWord(words []string, do func(word string) error) error {
	var wrong []Line
	for _, word := range words {
		switch err := do(word); {
		case err == nil:
		case isFinding(err):
			wrong = append(wrong, Line{Text: word, Err: err})
		default:
			return err
		}
	}
	return wrongLines(wrong)
}

// read reads pages of both channels.
func (s *selecting) read(ctx context.Context, images ...string) (err error) {
	if s.pages, err = s.p.Pages(ctx, s.from, images...); err == nil {
		s.target, err = s.p.Pages(ctx, s.to, images...)
	}
	return err
}

// set selects all members of a set.
func (s *selecting) set(ctx context.Context, name string) error {
	whole, err := s.p.setOf(ctx, s.from, s.pages, name)
	if err != nil {
		return err
	}
	if len(whole.members) == 0 {
		return noSet(s.from, s.pages, name)
	}
	if err := s.lacks(whole); err != nil {
		return err
	}
	s.out.Changes = whole.changes()
	return nil
}

// all selects the newest release of each image, and the other members of their sets.
func (s *selecting) all(ctx context.Context) error {
	chosen := map[string]bool{}
	var sets []string
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
			s.out.Changes = append(s.out.Changes, c)
		default:
			chosen[c.Member()] = true
			sets = append(sets, r.Set)
		}
	}
	slices.Sort(sets)
	for _, name := range slices.Compact(sets) {
		whole, err := s.p.setOf(ctx, s.from, s.pages, name)
		if err != nil {
			return err
		}
		lacks := s.lacks(whole)
		for _, c := range whole.changes() {
			if lacks == nil {
				s.out.Changes = append(s.out.Changes, c)
			} else if chosen[c.Member()] {
				s.skip(c, lacks.Error())
			}
		}
	}
	s.out.Changes = s.once(s.out.Changes)
	return nil
}

// skipYoung names the newest release of an image that is offered, and not long enough.
func (s *selecting) skipYoung(image string) {
	if r := newest(s.pages[image]); r != nil {
		c := catalog.Change{Image: image, Release: *r}
		s.skip(c, s.soak.lacks(s.from, c))
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
	if r := find(s.pages[image], tag); r != nil {
		return r.Set
	}
	return ""
}

// images selects the releases that words name.
func (s *selecting) images(ctx context.Context, from Selection) error {
	chosen := map[string]bool{}
	err := eachWord(from.Images, func(word string) error {
		c, hasTag, err := s.p.find(ctx, s.from, s.pages, word, false)
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
		s.out.Changes = append(s.out.Changes, c)
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
	if why := s.soak.lacks(s.from, c); why != "" {
		return "", refuse(KindSoak, c.Member(), "%s", why)
	}
	why = withdrawnFrom(s.from.Channel, s.pages[c.Image], c.Release)
	if why != "" && (!withdrawn || s.from.Channel != s.to.Channel) {
		return "", refuse(KindWithdrawn, c.Member(), "%s", why)
	}
	c.Release.Withdrawn = nil
	return withdrawnFrom(s.to.Channel, s.target[c.Image], c.Release), nil
}

// inOther says that only the other channel lists an image: the channels were given in the wrong order.
func (s *selecting) inOther(word string, err error) error {
	name, _, _, splitErr := splitWord(word)
	e, ok := errors.AsType[*Error](err)
	if splitErr != nil || !ok || e.Kind != KindImage {
		return err
	}
	_, here := FindImage(s.from, name)
	if _, there := FindImage(s.to, name); here != nil && there == nil {
		e.Text += fmt.Sprintf(", but %s does: FROM comes before TO", s.to.Channel)
	}
	return e
}

// whole refuses a part of a set. What was found in a registry gets the set that names it.
func (s *selecting) whole(ctx context.Context, chosen map[string]bool) error {
	of := map[string]set{} // by member
	hasSet := slices.ContainsFunc(s.out.Changes, func(c catalog.Change) bool { return c.Release.Set != "" })
	if hasSet {
		if err := s.read(ctx); err != nil {
			return err
		}
	}
	for _, c := range s.out.Changes {
		if c.Release.Set == "" {
			continue
		}
		whole, err := s.p.setOf(ctx, s.from, s.pages, c.Release.Set)
		if err != nil {
			return err
		}
		if rest := s.notIn(whole, chosen); len(rest) > 0 {
			return refuse(KindSet, c.Member(), "it is in set %q together with %s", c.Release.Set, some(rest))
		}
		for _, member := range whole.names() {
			if _, is := of[member]; !is || s.ownSet(member) == whole.name {
				of[member] = whole
			}
		}
	}
	for n := range s.out.Changes {
		c := &s.out.Changes[n]
		if whole, is := of[c.Member()]; is {
			c.Release.Set, c.Release.Members = whole.name, whole.names()
		}
	}
	return nil
}

// notIn returns the members of a set that are neither chosen nor offered by the target.
func (s *selecting) notIn(whole set, chosen map[string]bool) []string {
	return slices.DeleteFunc(whole.names(), func(member string) bool {
		image, tag := catalog.SplitMember(member)
		there := find(s.target[image], tag)
		return chosen[member] || there != nil && there.Withdrawn == nil
	})
}

// lacks returns why a set cannot be promoted as a whole; nil: it can.
func (s *selecting) lacks(whole set) error {
	if missing := whole.missing(); len(missing) > 0 {
		return refuse(KindSet, whole.name,
			"channel %s does not list %s of this set any more, nor does a version that can be read",
			s.from.Channel, some(missing))
	}
	for _, c := range whole.changes() {
		if why := s.withdrawn(c); why != "" {
			return refuse(KindWithdrawn, whole.name, "%s of this set is %s", c.Member(), why)
		}
		if why := s.soak.lacks(s.from, c); why != "" {
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
	why := withdrawnFrom(s.from.Channel, s.pages[c.Image], c.Release)
	return cmp.Or(why, withdrawnFrom(s.to.Channel, s.target[c.Image], c.Release))
}

// withdrawnFrom says that a channel has withdrawn a release, under any tag, or another one under its
// tag; "": it has not.
func withdrawnFrom(channel string, page catalog.Page, r catalog.Release) string {
	is := withdrawnAs(page, r.Tag, r.Digest)
	if is == nil {
		return ""
	}
	as := ""
	if is.Tag != r.Tag {
		as = " as " + is.Tag
	} else if is.Digest != r.Digest {
		as = " as " + string(is.Digest)
	}
	return fmt.Sprintf("withdrawn from %s%s: %s", channel, as, is.Withdrawn.Reason)
}

// withdrawnAs returns the withdrawn release of a page that has a tag or a digest; nil: there is none.
func withdrawnAs(page catalog.Page, tag string, d digest.Digest) *catalog.Release {
	at := slices.IndexFunc(page.Releases, func(r catalog.Release) bool {
		return r.Withdrawn != nil && (r.Tag == tag || r.Digest == d)
	})
	if at < 0 {
		return nil
	}
	return &page.Releases[at]
}

func (s *selecting) skip(c catalog.Change, why string) {
	s.out.Skipped = append(s.out.Skipped, Outcome{
		Image: c.Image, Tag: c.Release.Tag, Digest: c.Release.Digest, Skipped: true, Note: "skipped: " + why,
	})
}

// some names the first of many.
func some(members []string) string {
	const most = 5
	if len(members) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(members[:most], ", "), len(members)-most)
	}
	return strings.Join(members, ", ")
}

// newest returns the newest release of a page that is offered; nil if there is none.
func newest(p catalog.Page) *catalog.Release {
	at := slices.IndexFunc(p.Releases, func(r catalog.Release) bool { return r.Withdrawn == nil })
	if at < 0 {
		return nil
	}
	return &p.Releases[at]
}

// find returns the release of a channel that a word means: REPOSITORY:TAG, also with its digest, or
// without a tag the newest that is offered. Of the repository, its end is enough. What fell off the
// page is found in earlier versions. With its digest, a release may also be one that the channel never
// listed, where that is allowed, or where that cannot be told.
func (p *Publisher) find(
	ctx context.Context, v Version, pages map[string]catalog.Page, word string, unlisted bool,
) (c catalog.Change, hasTag bool, err error) {
	name, tag, want, err := splitWord(word)
	if err != nil {
		return c, false, err
	}
	c.Image, err = FindImage(v, name)
	if err != nil {
		return c, false, err
	}
	page := pages[c.Image]
	if tag == "" {
		r := newest(page)
		if r == nil {
			return c, false, refuse(KindWithdrawn, c.Image, "all its releases are withdrawn from %s", v.Channel)
		}
		c.Release = *r
		return c, false, nil
	}
	c.Release, err = p.release(ctx, v, page, tag, want, unlisted)
	return c, true, err
}

// splitWord divides REPOSITORY, REPOSITORY:TAG and REPOSITORY:TAG@DIGEST.
func splitWord(word string) (name, tag string, want digest.Digest, err error) {
	name, text, hasDigest := strings.Cut(word, "@")
	if at := strings.LastIndexByte(name, ':'); at > strings.LastIndexByte(name, '/') {
		name, tag = name[:at], name[at+1:]
	}
	want = digest.Digest(text)
	switch {
	case hasDigest && want.Validate() != nil:
		err = refuse(KindInput, word, "behind @, want a digest as sha256:HEX")
	case hasDigest && tag == "":
		err = refuse(KindInput, word, "the tag is missing: want REPOSITORY:TAG@DIGEST")
	}
	return name, tag, want, err
}

// release returns the release of a tag: from the page, from that of an earlier version, or from its
// registry.
func (p *Publisher) release(
	ctx context.Context, v Version, page catalog.Page, tag string, want digest.Digest, unlisted bool,
) (catalog.Release, error) {
	member := catalog.Member(page.Image, tag)
	r, isCut, err := p.findPast(ctx, v, page, tag)
	switch {
	case err != nil:
		return catalog.Release{}, err
	case r != nil && want != "" && r.Digest != want:
		return catalog.Release{}, refuse(KindDigest, member,
			"channel %s lists it with digest %s, not %s", v.Channel, r.Digest, want)
	case r != nil:
		return *r, nil
	case (isCut || unlisted) && want != "":
		if _, err := p.client.Head(ctx, page.Image, want.String()); err == nil {
			return catalog.Release{Tag: tag, Digest: want}, nil
		} else if !errors.Is(err, release.ErrNotFound) {
			return catalog.Release{}, err
		}
	}
	if isCut {
		return catalog.Release{}, refuse(KindImage, member,
			"neither channel %s nor a version of it that can be read lists it: name it with its digest", v.Channel)
	}
	return catalog.Release{}, notListed(v, page, member)
}

// notListed returns the error for a release that a channel does not list.
func notListed(v Version, page catalog.Page, member string) error {
	e := refuse(KindImage, member, "channel %s does not list it", v.Channel)
	var listed []string
	for _, r := range page.Releases {
		listed = append(listed, r.Tag)
	}
	_, tag := catalog.SplitMember(member)
	e.Near = near(tag, listed)
	return e
}

// findPast returns the release of a tag from the newest version that lists it; nil if there is none.
func (p *Publisher) findPast(
	ctx context.Context, v Version, page catalog.Page, tag string,
) (found *catalog.Release, isCut bool, err error) {
	if found = find(page, tag); found != nil {
		return found, false, nil
	}
	last, _ := v.Page(page.Image)
	isCut, err = p.back(ctx, v, func(each Version) (bool, error) {
		ref, listed := each.Page(page.Image)
		if !listed || ref == last {
			return listed, nil
		}
		last = ref
		pages, err := p.Pages(ctx, each, page.Image)
		found = find(pages[page.Image], tag)
		return found == nil, err
	})
	return found, isCut && found == nil, err
}
