// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
)

// pagesOf returns the pages of these images of a version.
type pagesOf func(ctx context.Context, images ...string) (map[string]catalog.Page, error)

// leftOut names what the versions after a base have, and the next one, which builds upon the base, does not: releases
// that are not offered any more, and releases that were withdrawn and that are offered again. No signature is checked:
// nodes may have accepted these versions. One that cannot be read no node has accepted.
func (p *Publisher) leftOut(
	ctx context.Context, on Version, head digest.Digest, tags []string, next pagesOf,
) ([]Outcome, error) {
	later, err := p.after(ctx, on, head, tags)
	if err != nil {
		return nil, err
	}
	found := map[string]Outcome{} // by member
	for _, v := range later {
		p.step("comparing with version %d, which is left out", v.Version)
		pages, err := p.Pages(ctx, v)
		if isFinding(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		now, err := next(ctx, append([]string{}, slices.Sorted(maps.Keys(pages))...)...)
		if err != nil {
			return nil, err
		}
		for image, page := range pages {
			noteLeft(found, v.Version, page, now[image])
		}
	}
	out := make([]Outcome, 0, len(found))
	for _, member := range slices.Sorted(maps.Keys(found)) {
		out = append(out, found[member])
	}
	return out, nil
}

// noteLeft notes the releases of a page that differ in the next version. That one was withdrawn comes first.
func noteLeft(found map[string]Outcome, version uint64, page, now catalog.Page) {
	for _, r := range page.Releases {
		note, member := leftNote(version, r, now), catalog.Member(page.Image, r.Tag)
		was, known := found[member]
		if note != "" && (!known || r.Withdrawn != nil && !was.Changed) {
			found[member] = Outcome{
				Image: page.Image, Tag: r.Tag, Digest: r.Digest, Changed: r.Withdrawn != nil, Note: note,
			}
		}
	}
}

// leftNote says how a release of a version that is left out differs from the next one; "": it does not.
func leftNote(version uint64, r catalog.Release, now catalog.Page) string {
	switch {
	case r.Withdrawn != nil && offers(now, r.Digest):
		return fmt.Sprintf("offered again: version %d, which is left out, has withdrawn it: %s", version, r.Withdrawn.Reason)
	case r.Withdrawn == nil && !offers(now, r.Digest) && ops.WithdrawnAs(now, r.Tag, r.Digest) == nil:
		return fmt.Sprintf("not offered any more: version %d, which lists it, is left out", version)
	}
	return ""
}

// after returns the versions after a base: the one that the channel names, and those with a version tag.
func (p *Publisher) after(ctx context.Context, on Version, head digest.Digest, tags []string) ([]Version, error) {
	tags = laterTags(on.Version, on.Channel, tags)
	digests := []digest.Digest{head}
	for _, tag := range tags[:min(len(tags), maxLater)] {
		d, err := p.head(ctx, tag)
		if err != nil {
			return nil, err
		}
		if d != "" && !slices.Contains(digests, d) {
			digests = append(digests, d)
		}
	}
	var out []Version
	for _, d := range digests {
		v, err := p.past(ctx, d)
		switch {
		case isFinding(err):
		case err != nil:
			return nil, err
		case v.Name == p.name && v.Channel == on.Channel && v.Digest != on.Digest:
			out = append(out, v)
		}
	}
	return out, nil
}
