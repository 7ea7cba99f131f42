// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
)

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
		err = refuse(KindInput, word, "behind @, want a digest as sha256:HEX")
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
