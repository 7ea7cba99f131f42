// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
)

// set is a set of a channel, as far as it is known.
type set struct {
	name    string
	members map[string]*catalog.Release // by member; nil: it is known by its name only
	records map[string]bool             // members that name all others
	last    []string                    // the list of members that was taken last: releases of a set share it
	isCut   bool                        // there may be more, in versions that cannot be read
}

// names returns the members, sorted.
func (s *set) names() []string { return slices.Sorted(maps.Keys(s.members)) }

// missing returns the members that are known by their names only.
func (s *set) missing() []string {
	return slices.DeleteFunc(s.names(), func(member string) bool { return s.members[member] != nil })
}

// changes returns the members that are known, sorted, as releases of the set.
func (s *set) changes() []catalog.Change {
	var out []catalog.Change
	names := s.names()
	for _, member := range names {
		if r := s.members[member]; r != nil {
			image, _ := catalog.SplitMember(member)
			c := catalog.Change{Image: image, Release: *r}
			c.Release.Set, c.Release.Members = s.name, names
			out = append(out, c)
		}
	}
	return out
}

// isRecorded reports whether all members are known, as far as their releases name them.
func (s *set) isRecorded() bool {
	return len(s.missing()) == 0 && !slices.Contains(slices.Collect(maps.Values(s.records)), false)
}

// sets are some sets of a channel, which are gathered at once: one pass over its pages, and one over its past.
type sets struct {
	named  map[string]*set
	newest map[string]catalog.Page // the channel's pages
	images map[string]bool         // whose pages can have the sets; nil: any page can
	last   map[string]catalog.Page // the pages of the version that was read last
}

// setsOf returns sets of a channel with all members that they have or had: those of its pages, those that their
// releases name, and what fell off, or got another set, since the set began. It reads earlier versions for it: a
// publisher that adds to a set beside another one may not name all of it.
func (v *View) setsOf(ctx context.Context, names ...string) (map[string]*set, error) {
	images, err := v.imagesOfSets(ctx, names...)
	if err != nil {
		return nil, err
	}
	pages, err := v.Pages(ctx, images...)
	if err != nil {
		return nil, err
	}
	s := &sets{named: map[string]*set{}, newest: pages, last: map[string]catalog.Page{}}
	if images != nil {
		s.images = setOf(images)
	}
	for _, name := range names {
		s.named[name] = &set{name: name, members: map[string]*catalog.Release{}, records: map[string]bool{}}
	}
	for image, page := range pages {
		s.take(image, page)
	}
	isCut, err := v.past(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, each := range s.named {
		for _, member := range each.missing() {
			image, tag := catalog.SplitMember(member)
			pages, err := v.Pages(ctx, image)
			if err != nil {
				return nil, err
			}
			page := pages[image]
			page.Image = image
			if each.members[member], _, err = v.findPast(ctx, page, tag); err != nil {
				return nil, err
			}
		}
		each.isCut = isCut && !each.isRecorded()
	}
	return s.named, nil
}

// imagesOfSets returns the images that have releases of sets, or had; nil, which is all, if the log does not tell,
// because it has lost its beginning, or is larger than all pages. Ops that cross name a part of a set each, and the log
// has them all.
func (v *View) imagesOfSets(ctx context.Context, names ...string) ([]string, error) {
	var logs, pages int64
	for _, ref := range v.Log {
		logs += ref.Size
	}
	for _, ref := range v.Manifest.Pages {
		pages += ref.Size
	}
	if logs > pages {
		return nil, nil
	}
	log, err := v.log(ctx)
	if err != nil || v.Digest != "" && (len(log) == 0 || log[0].Version != 1) {
		return nil, err
	}
	wanted, images := setOf(names), map[string]bool{}
	for _, e := range log {
		for _, c := range e.Changes {
			if wanted[c.Release.Set] {
				images[c.Image] = true
			}
		}
	}
	return append([]string{}, slices.Sorted(maps.Keys(images))...), nil
}

// past takes in the pages of one version after the other, until one from before all the sets began: no page has them.
func (v *View) past(ctx context.Context, s *sets) (isCut bool, err error) {
	if v.Digest == "" || s.images != nil && len(s.images) == 0 {
		return false, nil
	}
	var after Version
	return v.p.back(ctx, v.Version, func(each Version) (bool, error) {
		if after.Digest != "" {
			if err := v.p.takePast(ctx, s, after, each); err != nil {
				return false, err
			}
		}
		after = each
		return s.areListed(), nil
	})
}

// areListed reports whether the version that was read last lists one of the sets, or one was not found yet.
func (s *sets) areListed() bool {
	for _, page := range s.last {
		if slices.ContainsFunc(page.Releases, func(r catalog.Release) bool { return s.named[r.Set] != nil }) {
			return true
		}
	}
	for _, of := range s.named {
		if len(of.members) == 0 {
			return true
		}
	}
	return false
}

// takePast takes in the pages of a version that differ from those of the version after it.
func (r *reader) takePast(ctx context.Context, s *sets, after, v Version) error {
	for _, ref := range after.Pages {
		if _, listed := v.Page(ref.Image); !listed { // not yet
			delete(s.last, ref.Image)
		}
	}
	changed := slices.DeleteFunc(notIn(v, after), func(image string) bool { return s.images != nil && !s.images[image] })
	old, err := r.Pages(ctx, v, changed...)
	for image, page := range old {
		s.take(image, page)
	}
	return err
}

// take adds the releases of a page that are in the sets.
func (s *sets) take(image string, page catalog.Page) {
	s.last[image] = page
	for n, r := range page.Releases {
		of := s.named[r.Set]
		if r.Set == "" || of == nil {
			continue
		}
		s.takeMembers(of, r.Members)
		own := catalog.Member(image, r.Tag)
		of.records[own] = of.records[own] || len(r.Members) > 0
		if of.members[own] == nil {
			if of.members[own] = s.now(own); of.members[own] == nil {
				of.members[own] = &page.Releases[n]
			}
		}
	}
}

// takeMembers adds the members that a release names.
func (s *sets) takeMembers(of *set, members []string) {
	if ops.IsShared(of.last, members) {
		return
	}
	for _, member := range members {
		if of.members[member] == nil {
			of.members[member] = s.now(member)
		}
	}
	of.last = members
}

// now returns a member as the channel lists it; nil: it does not.
func (s *sets) now(member string) *catalog.Release {
	image, tag := catalog.SplitMember(member)
	return ops.Find(s.newest[image], tag)
}

// noSet returns the error for a set that a channel does not have.
func (v *View) noSet(ctx context.Context, name string) error {
	pages, err := v.Pages(ctx)
	if err != nil {
		return err
	}
	e := refuse(KindImage, name, "channel %s has no such set", v.Channel)
	e.Near = near(name, setNames(pages))
	return e
}

// setNames returns the names of all sets of pages, sorted.
func setNames(pages map[string]catalog.Page) []string {
	names := map[string]bool{}
	for _, page := range pages {
		for _, r := range page.Releases {
			names[r.Set] = true
		}
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}

// eachWord calls a function with each word. Its error names all words that are wrong.
func eachWord(words []string, do func(word string) error) error {
	var wrong []Wanted
	for _, word := range words {
		switch err := do(word); {
		case err == nil:
		case isFinding(err):
			wrong = append(wrong, Wanted{Text: word, Err: err})
		default:
			return err
		}
	}
	return wrongLines(wrong)
}

// some names the first of many.
func some(members []string) string {
	const most = 5
	if len(members) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(members[:most], ", "), len(members)-most)
	}
	return strings.Join(members, ", ")
}

// FindImage returns the image that a person means: the whole repository, or the end of one.
func FindImage(v Version, word string) (string, error) {
	var all, ends []string
	if whole, err := release.NormalizeRepository(word); err == nil {
		if _, ok := v.Page(whole); ok {
			return whole, nil
		}
	}
	for _, p := range v.Pages {
		all = append(all, p.Image)
		if strings.HasSuffix(p.Image, "/"+word) {
			ends = append(ends, p.Image)
		}
	}
	switch len(ends) {
	case 1:
		return ends[0], nil
	case 0:
		e := refuse(KindImage, word, "channel %s lists no such image", v.Channel)
		e.Near = nearImage(word, all)
		return "", e
	}
	e := refuse(KindImage, word, "channel %s lists %d such images", v.Channel, len(ends))
	e.Near = ends[:min(len(ends), 4)]
	return "", e
}

// nearImage compares a word with as much of each image's end.
func nearImage(word string, images []string) []string {
	parts := strings.Count(word, "/") + 1
	whole := map[string]string{}
	var ends []string
	for _, image := range images {
		all := strings.Split(image, "/")
		end := strings.Join(all[max(0, len(all)-parts):], "/")
		whole[end] = image
		ends = append(ends, end)
	}
	var out []string
	for _, end := range near(word, ends) {
		out = append(out, whole[end])
	}
	return out
}

// image returns the image that a person means, also one that only pending ops list.
func (v *View) image(word string) (string, error) {
	with := v.Version
	with.Pages = nil
	for _, image := range v.images() {
		with.Pages = append(with.Pages, catalog.PageRef{Image: image})
	}
	with.Channel = v.Channel
	return FindImage(with, word)
}

// named returns the images that words name. A word that names no image is refused later.
func (v *View) named(words []string) []string {
	images := []string{}
	for _, word := range words {
		if name, _, _, err := splitWord(word); err == nil {
			if image, err := v.image(name); err == nil {
				images = append(images, image)
			}
		}
	}
	slices.Sort(images)
	return slices.Compact(images)
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
		err = refuse(KindInput, word, "after @, want a digest (sha256:HEX)")
	case hasDigest && tag == "":
		err = refuse(KindInput, word, "the tag is missing: want REPOSITORY:TAG@DIGEST")
	}
	return name, tag, want, err
}

// find returns the release that a word means: REPOSITORY:TAG, also with its digest, or without a tag the newest that is
// offered. Of the repository, its end is enough. What fell off the page is found in earlier versions. With its digest,
// a release may also be one that the channel never listed, where that is allowed, or where that cannot be told.
func (v *View) find(ctx context.Context, word string, unlisted bool) (c catalog.Change, hasTag bool, err error) {
	name, tag, want, err := splitWord(word)
	if err != nil {
		return c, false, err
	}
	if c.Image, err = v.image(name); err != nil {
		return c, false, err
	}
	pages, err := v.Pages(ctx, c.Image)
	if err != nil {
		return c, false, err
	}
	page := pages[c.Image]
	page.Image = c.Image
	if tag == "" {
		r := ops.Newest(page)
		if r == nil {
			return c, false, refuse(KindWithdrawn, c.Image, "all its releases are withdrawn from %s", v.Channel)
		}
		c.Release = *r
		return c, false, nil
	}
	c.Release, err = v.release(ctx, page, tag, want, unlisted)
	return c, true, err
}

// release returns the release of a tag: from the page, from that of an earlier version, or from its registry.
func (v *View) release(
	ctx context.Context, page catalog.Page, tag string, want digest.Digest, unlisted bool,
) (catalog.Release, error) {
	member := catalog.Member(page.Image, tag)
	r, isCut, err := v.findPast(ctx, page, tag)
	switch {
	case err != nil:
		return catalog.Release{}, err
	case r != nil && want != "" && r.Digest != want:
		return catalog.Release{}, refuse(KindDigest, member,
			"channel %s lists it with digest %s, not %s", v.Channel, r.Digest, want)
	case r != nil:
		return *r, nil
	case (isCut || unlisted) && want != "":
		if _, err := v.p.registry.Head(ctx, page.Image, want.String()); err == nil {
			return catalog.Release{Tag: tag, Digest: want}, nil
		} else if !errors.Is(err, release.ErrNotFound) {
			return catalog.Release{}, err
		}
	}
	if isCut {
		return catalog.Release{}, refuse(KindImage, member,
			"neither channel %s nor a version of it that can be read lists it: name it with its digest", v.Channel)
	}
	return catalog.Release{}, notListed(v.Version, page, member)
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

// findPast returns the release of a tag from the page, or from the newest version that lists it; nil if there is none.
func (v *View) findPast(
	ctx context.Context, page catalog.Page, tag string,
) (found *catalog.Release, isCut bool, err error) {
	if found = ops.Find(page, tag); found != nil || v.Digest == "" {
		return found, false, nil
	}
	last := catalog.PageRef{}
	isCut, err = v.p.back(ctx, v.Version, func(each Version) (bool, error) {
		ref, listed := each.Page(page.Image)
		if !listed || ref == last {
			return listed, nil
		}
		last = ref
		pages, err := v.p.Pages(ctx, each, page.Image)
		found = ops.Find(pages[page.Image], tag)
		return found == nil, err
	})
	return found, isCut && found == nil, err
}
