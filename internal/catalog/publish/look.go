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
	"github.com/kubic-project/image-update-agent/tags"
)

// Difference is an image whose newest release differs between two channels, or a release that only
// one of them has withdrawn.
type Difference struct {
	Image  string `json:"image"`
	From   string `json:"from"`   // tag; empty: none
	To     string `json:"to"`     // tag; empty: none
	Change string `json:"change"` // what From changes against To: rebuild, revision, ... lower, new, gone, withdrawn
	// WithdrawnFrom is the channel that has withdrawn the release, which the other one offers; of two versions of one
	// channel, CHANNEL@VERSION.
	WithdrawnFrom string `json:"withdrawnFrom,omitempty"`
	Note          string `json:"note,omitempty"`
	// Brought is what From says of its releases above To, up to its newest.
	catalog.Brought
}

// Diff compares what two channels offer.
func (p *Publisher) Diff(ctx context.Context, from, to Version) ([]Difference, error) {
	a, err := p.Pages(ctx, from)
	if err != nil {
		return nil, err
	}
	b, err := p.Pages(ctx, to)
	if err != nil {
		return nil, err
	}
	images := map[string]bool{}
	for image := range a {
		images[image] = true
	}
	for image := range b {
		images[image] = true
	}
	out := []Difference{}
	nameA, nameB := from.Channel, to.Channel
	if nameA == nameB {
		nameA, nameB = versionName(from), versionName(to)
	}
	for _, image := range slices.Sorted(maps.Keys(images)) {
		out = append(out, diffPages(image, nameA, a[image], nameB, b[image])...)
	}
	return out, nil
}

// versionName names a version as the command line does.
func versionName(v Version) string { return fmt.Sprintf("%s@%d", v.Channel, v.Version) }

// diffPages compares the pages of an image.
func diffPages(image, from string, a catalog.Page, to string, b catalog.Page) []Difference {
	var out []Difference
	d := Difference{Image: image}
	top, there := ops.Newest(a), ops.Newest(b)
	var first, second digest.Digest
	if top != nil {
		d.From, first = top.Tag, top.Digest
	}
	if there != nil {
		d.To, second = there.Tag, there.Digest
	}
	// What a promotion would skip is named below.
	isSkipped := top != nil && ops.WithdrawnAs(b, top.Tag, top.Digest) != nil
	if (d.From != d.To || first != second) && !isSkipped {
		d.Change = changeOf(d.To, d.From)
		if top != nil {
			d.Brought = catalog.Between(builds(a), second, first, tags.Scheme{})
		}
		out = append(out, d)
	}
	for _, r := range b.Releases {
		if is := ops.WithdrawnAs(a, r.Tag, r.Digest); r.Withdrawn == nil && is != nil {
			out = append(out, Difference{
				Image: image, From: is.Tag, To: r.Tag, Change: "withdrawn", WithdrawnFrom: from, Note: is.Withdrawn.Reason,
			})
		}
	}
	for _, r := range a.Releases {
		if is := ops.WithdrawnAs(b, r.Tag, r.Digest); r.Withdrawn == nil && is != nil {
			out = append(out, Difference{
				Image: image, From: r.Tag, To: is.Tag, Change: "withdrawn", WithdrawnFrom: to, Note: is.Withdrawn.Reason,
			})
		}
	}
	return out
}

// builds returns the releases of a page as catalog.Between takes them.
func builds(page catalog.Page) []catalog.Build {
	out := make([]catalog.Build, 0, len(page.Releases))
	for _, r := range page.Releases {
		out = append(out, catalog.Build{Tag: r.Tag, Digest: r.Digest, Created: r.Created, Advisory: r.Advisory})
	}
	return out
}

// changeOf names the change from one tag to another.
func changeOf(from, to string) string {
	switch {
	case from == "":
		return "new"
	case to == "":
		return "gone"
	}
	x, errX := tags.Parse(from)
	y, errY := tags.Parse(to)
	if errX != nil || errY != nil {
		return tags.Unrelated.String()
	}
	return tags.ChangeBetween(x, y).String()
}

// OnlyTags returns a page with these releases only; without tags, the whole page. The error names a tag that the page
// does not list.
func OnlyTags(v Version, page catalog.Page, named []string) (catalog.Page, error) {
	if len(named) == 0 {
		return page, nil
	}
	for _, tag := range named {
		if ops.Find(page, tag) == nil {
			return catalog.Page{}, notListed(v, page, catalog.Member(page.Image, tag))
		}
	}
	page.Releases = slices.DeleteFunc(slices.Clone(page.Releases), func(r catalog.Release) bool {
		return !slices.Contains(named, r.Tag)
	})
	return page, nil
}
