// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
)

// Withdrawal selects releases of a channel that nodes must not run any more, and says why.
type Withdrawal struct {
	Images []string // REPOSITORY:TAG, or the ends of them, also with the digest
	Set    string   // all releases of a set, in place of Images
	Reason string
	// Instead are the tags to run instead: TAG if all releases are of one image, otherwise REPOSITORY:TAG.
	Instead []string
}

// Withdraw marks releases as withdrawn: each with all tags that the channel lists for its digest. A release that fell
// off its page is found in earlier versions; one that was never listed is taken with its digest only.
func Withdraw(w Withdrawal) Verb {
	return func(ctx context.Context, v *View) (Draft, error) {
		selected, err := v.withdrawn(ctx, w)
		if err != nil {
			return Draft{}, err
		}
		pages, err := v.Pages(ctx, imagesOf(catalog.Op{Changes: selected})...)
		if err != nil {
			return Draft{}, err
		}
		selected = withSameDigest(selected, pages)
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

// withdrawn returns the releases that are meant.
func (v *View) withdrawn(ctx context.Context, w Withdrawal) (out []catalog.Change, err error) {
	if w.Set != "" {
		return v.withdrawnSet(ctx, w.Set)
	}
	return v.tagged(ctx, w.Images, true)
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

// withSameDigest adds the other tags that pages list for the digests of releases.
func withSameDigest(selected []catalog.Change, pages map[string]catalog.Page) []catalog.Change {
	out, known := slices.Clone(selected), map[string]bool{}
	for _, c := range selected {
		known[c.Member()] = true
	}
	for _, c := range selected {
		for _, r := range pages[c.Image].Releases {
			other := catalog.Change{Image: c.Image, Release: r}
			if r.Digest == c.Release.Digest && !known[other.Member()] {
				known[other.Member()] = true
				out = append(out, other)
			}
		}
	}
	return out
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
