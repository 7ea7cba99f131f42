// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// Selection says which releases of a channel are meant.
type Selection struct {
	Images []string // REPOSITORY, REPOSITORY:TAG, or their ends; without a tag the newest
	Set    string   // all releases of a set
	All    bool     // the newest release of each image
}

// Select returns releases of a channel that are offered.
func (p *Publisher) Select(ctx context.Context, v Version, s Selection) ([]catalog.Change, error) {
	if s.Set != "" || s.All {
		pages, err := p.Pages(ctx, v)
		if err != nil {
			return nil, err
		}
		if s.Set != "" {
			return selectSet(v, pages, s.Set)
		}
		return selectNewest(pages), nil
	}
	var out []catalog.Change
	for _, word := range s.Images {
		c, err := p.SelectOne(ctx, v, word)
		if err != nil {
			return nil, err
		}
		if c.Release.Withdrawn != nil {
			return nil, refuse(KindWithdrawn, c.Image+":"+c.Release.Tag, "withdrawn from %s: %s",
				v.Channel, c.Release.Withdrawn.Reason)
		}
		out = append(out, c)
	}
	return out, nil
}

// SelectOne returns the release that a word means: REPOSITORY:TAG, or without a tag the newest
// that is offered. Of the repository, its end is enough.
func (p *Publisher) SelectOne(ctx context.Context, v Version, word string) (catalog.Change, error) {
	word, _, _ = strings.Cut(word, "@")
	name, tag := word, ""
	if at := strings.LastIndexByte(word, ':'); at > strings.LastIndexByte(word, '/') {
		name, tag = word[:at], word[at+1:]
	}
	image, err := FindImage(v, name)
	if err != nil {
		return catalog.Change{}, err
	}
	pages, err := p.Pages(ctx, v, image)
	if err != nil {
		return catalog.Change{}, err
	}
	if tag == "" {
		if r := newest(pages[image]); r != nil {
			return catalog.Change{Image: image, Release: *r}, nil
		}
		return catalog.Change{}, refuse(KindWithdrawn, image, "all its releases are withdrawn from %s", v.Channel)
	}
	if r := find(pages[image], tag); r != nil {
		return catalog.Change{Image: image, Release: *r}, nil
	}
	e := refuse(KindImage, image+":"+tag, "channel %s does not list it", v.Channel)
	var listed []string
	for _, r := range pages[image].Releases {
		listed = append(listed, r.Tag)
	}
	e.Near = near(tag, listed)
	return catalog.Change{}, e
}

// newest returns the newest release of a page that is offered; nil if there is none.
func newest(p catalog.Page) *catalog.Release {
	at := slices.IndexFunc(p.Releases, func(r catalog.Release) bool { return r.Withdrawn == nil })
	if at < 0 {
		return nil
	}
	return &p.Releases[at]
}

func selectNewest(pages map[string]catalog.Page) []catalog.Change {
	var out []catalog.Change
	for _, image := range slices.Sorted(maps.Keys(pages)) {
		if r := newest(pages[image]); r != nil {
			out = append(out, catalog.Change{Image: image, Release: *r})
		}
	}
	return out
}

// selectSet returns all releases of a set, and refuses one of which a part is withdrawn.
func selectSet(v Version, pages map[string]catalog.Page, set string) ([]catalog.Change, error) {
	var out []catalog.Change
	sets := map[string]bool{}
	for _, image := range slices.Sorted(maps.Keys(pages)) {
		for _, r := range pages[image].Releases {
			sets[r.Set] = true
			if r.Set == set && r.Withdrawn != nil {
				return nil, refuse(KindWithdrawn, set, "%s:%s of this set is withdrawn from %s: %s",
					image, r.Tag, v.Channel, r.Withdrawn.Reason)
			}
			if r.Set == set {
				out = append(out, catalog.Change{Image: image, Release: r})
			}
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	delete(sets, "")
	e := refuse(KindImage, set, "channel %s has no such set", v.Channel)
	e.Near = near(set, slices.Sorted(maps.Keys(sets)))
	return nil, e
}

// Promoted returns the changes that promote releases, after a check that their images are still
// there.
func (p *Publisher) Promoted(
	ctx context.Context, selected []catalog.Change, rollout *catalog.Rollout,
) ([]catalog.Change, error) {
	out := slices.Clone(selected)
	err := each(ctx, selected, func(ctx context.Context, n int, c catalog.Change) error {
		out[n].Release.Rollout, out[n].Release.Op = rollout, ""
		p.step("checking %s:%s", c.Image, c.Release.Tag)
		_, err := p.client.Head(ctx, c.Image, c.Release.Digest.String())
		if errors.Is(err, release.ErrNotFound) {
			return refuse(KindTag, c.Image+":"+c.Release.Tag, "its registry has no %s any more", c.Release.Digest)
		}
		return err
	})
	return out, err
}

// Withdrawn returns the changes that withdraw the releases that these words mean, each with its
// tag. instead is the tag to run in their place; empty: none.
func (p *Publisher) Withdrawn(
	ctx context.Context, v Version, words []string, reason, instead string,
) ([]catalog.Change, error) {
	var out []catalog.Change
	for _, word := range words {
		c, err := p.SelectOne(ctx, v, word)
		if err != nil {
			return nil, err
		}
		if instead != "" {
			if err := p.checkInstead(ctx, v, c, instead); err != nil {
				return nil, err
			}
		}
		if w := c.Release.Withdrawn; w != nil && w.Reason == reason && w.To == instead {
			continue
		}
		c.Release.Op = ""
		c.Release.Withdrawn = &catalog.Withdrawal{At: p.now().UTC(), Reason: reason, To: instead}
		out = append(out, c)
	}
	return out, nil
}

// checkInstead checks that a replacement is offered.
func (p *Publisher) checkInstead(ctx context.Context, v Version, c catalog.Change, instead string) error {
	to, err := p.SelectOne(ctx, v, c.Image+":"+instead)
	switch {
	case err != nil:
		return err
	case to.Release.Withdrawn != nil:
		return refuse(KindWithdrawn, c.Image+":"+instead, "withdrawn itself: %s", to.Release.Withdrawn.Reason)
	case instead == c.Release.Tag:
		return refuse(KindInput, c.Image+":"+instead, "cannot replace itself")
	}
	return nil
}
