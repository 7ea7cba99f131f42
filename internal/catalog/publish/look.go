// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
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
	images := slices.Concat(notIn(from, to), notIn(to, from))
	slices.Sort(images)
	images = slices.Compact(images)
	a, err := p.Pages(ctx, from, images...)
	if err != nil {
		return nil, err
	}
	b, err := p.Pages(ctx, to, images...)
	if err != nil {
		return nil, err
	}
	out := []Difference{}
	nameA, nameB := from.Channel, to.Channel
	if nameA == nameB {
		nameA, nameB = versionName(from), versionName(to)
	}
	for _, image := range images {
		out = append(out, diffPages(image, nameA, a[image], nameB, b[image])...)
	}
	return out, nil
}

// notIn returns the images of a version whose pages another one does not have; never nil, which would be all.
func notIn(v, other Version) []string {
	out := []string{}
	for _, ref := range v.Pages {
		if is, listed := other.Page(ref.Image); !listed || is != ref {
			out = append(out, ref.Image)
		}
	}
	return out
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
			d.Brought = catalog.Between(a.Releases, second, first, tags.Scheme{})
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

// Finding is a problem of a catalog.
type Finding struct {
	Channel string `json:"channel"`
	Object  string `json:"object"` // a tag, an image or an op
	Problem string `json:"problem"`
}

// soon is how long before its end a channel's validity is a finding.
const soon = 7 * 24 * time.Hour

// Verify checks a channel: its signature, if there are keys, all of its pages, its log, its version
// tag, its end, and the ops that wait; with images also that each release that is offered is in its
// registry. It returns the problems.
func (p *Publisher) Verify(ctx context.Context, channel string, images bool) ([]Finding, error) {
	c := &check{channel: channel}
	v, err := p.Read(ctx, channel)
	if err != nil {
		if isKind(err, KindChannel) || ctx.Err() != nil || !isFinding(err) {
			return nil, err
		}
		return append(c.findings, Finding{Channel: channel, Object: channel, Problem: err.Error()}), nil
	}
	if !v.Expires.IsZero() && v.Expires.Before(p.now().Add(soon)) {
		c.report(channel, "expires at %s", v.Expires.Format(time.RFC3339))
	}
	if v.Created.After(p.now().Add(ops.Ahead)) {
		c.report(channel, "created at %s, which is more than a day ahead: nodes refuse it; refresh publishes another one",
			v.Created.Format(time.RFC3339))
	}
	if err := p.verifyTags(ctx, c, v); err != nil {
		return nil, err
	}
	view, err := p.View(ctx, channel)
	if isFinding(err) {
		c.report(channel, "%v", err)
	} else if err != nil {
		return nil, err
	} else {
		for _, op := range view.Pending {
			c.report(op.Tag, "not published yet: the next publisher publishes it")
		}
		for _, w := range view.Waiting {
			c.report(w.Op, "not published yet: %s", w.Why)
		}
	}
	if err := p.verifyPages(ctx, c, v, images); err != nil {
		return nil, err
	}
	if _, err := p.Log(ctx, v); isFinding(err) {
		c.report("log", "%v", err)
	} else if err != nil {
		return nil, err
	}
	slices.SortFunc(c.findings, func(a, b Finding) int { return strings.Compare(a.Object, b.Object) })
	return c.findings, nil
}

// check gathers the problems of a channel.
type check struct {
	channel  string
	mu       sync.Mutex
	findings []Finding
}

func (c *check) report(object, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.findings = append(c.findings, Finding{Channel: c.channel, Object: object, Problem: fmt.Sprintf(format, args...)})
}

// isFinding reports whether an error is about the catalog, and not about the connection to the registry.
func isFinding(err error) bool {
	var format *catalog.Error
	var refused *Error
	return errors.As(err, &format) || errors.As(err, &refused) || errors.Is(err, release.ErrNotFound)
}

// verifyTags compares the version tags with the channel.
func (p *Publisher) verifyTags(ctx context.Context, c *check, v Version) error {
	tag := catalog.VersionTag(v.Channel, v.Version)
	switch d, err := p.registry.Head(ctx, p.repository, tag); {
	case errors.Is(err, release.ErrNotFound):
		c.report(tag, "the version has no tag of its own")
	case err != nil:
		return err
	case d != v.Digest:
		c.report(tag, "names %s, but the channel names %s", d, v.Digest)
	}
	tags, err := p.registry.Tags(ctx, p.repository)
	if err != nil {
		return err
	}
	var before uint64 // the highest of those that are too far below
	for _, tag := range tags {
		of, n, is := catalog.ParseVersionTag(tag)
		switch {
		case !is || of != v.Channel:
		case n+catalog.MaxJump <= v.Version:
			before = max(before, n)
		case n >= v.Version+catalog.MaxJump:
			c.report(tag, "too far above the channel's version %d: whoever knows that version ignores it", v.Version)
		}
	}
	if before > 0 {
		c.report(tag, "too far above version %d: nodes that know that version refuse it", before)
	}
	for n, tag := range laterTags(v.Version, v.Channel, tags) {
		if n == maxLater {
			c.report(v.Channel, "more than %d version tags are above version %d", maxLater, v.Version)
			break
		}
		c.report(tag, "above the channel's version %d: its publisher was stopped, or it is no version", v.Version)
	}
	return nil
}

// verifyPages reads all pages.
func (p *Publisher) verifyPages(ctx context.Context, c *check, v Version, images bool) error {
	return each(ctx, p.jobs, v.Pages, func(ctx context.Context, n int, ref catalog.PageRef) error {
		p.step("checking page %d of %d", n+1, len(v.Pages))
		pages, err := p.Pages(ctx, v, ref.Image)
		if err != nil {
			if !isFinding(err) {
				return err
			}
			c.report(ref.Image, "%v", err)
			return nil
		}
		for _, r := range pages[ref.Image].Releases {
			if w := r.Withdrawn; w != nil && w.To != "" && ops.Find(pages[ref.Image], w.To) == nil {
				c.report(ref.Image+":"+r.Tag, "withdrawn for %s, which is not listed", w.To)
			}
			if !images || r.Withdrawn != nil {
				continue
			}
			_, err := p.registry.Head(ctx, ref.Image, r.Digest.String())
			if errors.Is(err, release.ErrNotFound) {
				c.report(ref.Image+":"+r.Tag, "its registry has no %s", r.Digest)
			} else if err != nil {
				return err
			}
		}
		return nil
	})
}

// Copy is one copy that a mirror must make: a digest, and the tag that it gets.
type Copy struct {
	Repository string        `json:"repository"`
	Tag        string        `json:"tag"`
	Digest     digest.Digest `json:"digest"`
	Kind       string        `json:"kind"` // image, floating, signature or catalog
}

// Mirrored selects the releases of a channel that a mirror copies.
type Mirrored struct {
	Newest   int  // so many of the newest releases of each version; 0: all that are offered
	Floating bool // the short and intermediate tags, too, as the channel has them
}

// The kinds of copies of a release and of a version.
const (
	kindImage   = "image"
	kindCatalog = "catalog"
)

// Copies lists everything that a mirror of a channel must have: images, their signatures, the version and
// its signature. The channel's tag is last: a mirror that has it has all the others.
func (p *Publisher) Copies(ctx context.Context, v Version, m Mirrored) ([]Copy, error) {
	pages, err := p.Pages(ctx, v)
	if err != nil {
		return nil, err
	}
	images, ofImage := []Copy{}, make([][]Copy, len(v.Pages))
	for n, ref := range v.Pages {
		ofImage[n] = copiesOf(pages[ref.Image], m)
		images = append(images, ofImage[n]...)
	}
	unsigned, err := p.withoutSignatures(ctx, ofImage)
	if err != nil {
		return nil, err
	}
	signatures := make([][]Copy, len(images))
	err = each(ctx, p.jobs, images, func(ctx context.Context, n int, c Copy) error {
		if c.Kind != kindImage || unsigned[c.Repository] {
			return nil
		}
		p.step("looking for the signature of %s:%s", c.Repository, c.Tag)
		found, err := p.signatureOf(ctx, c.Repository, c.Digest)
		signatures[n] = found
		return err
	})
	if err != nil {
		return nil, err
	}
	own, err := p.signatureOf(ctx, p.repository, v.Digest)
	if err != nil {
		return nil, err
	}
	for _, tag := range []string{catalog.VersionTag(v.Channel, v.Version), v.Channel} {
		own = append(own, Copy{Repository: p.repository, Tag: tag, Digest: v.Digest, Kind: kindCatalog})
	}
	return slices.Concat(images, slices.Concat(signatures...), own), nil
}

// copiesOf lists the copies of a page.
func copiesOf(page catalog.Page, m Mirrored) []Copy {
	var out []Copy
	count := map[string]int{}
	known := map[string]bool{} // a tag is copied once; beside SUSE's scheme a short tag may name a release, as v1.34.2
	for _, r := range page.Releases {
		known[r.Tag] = true
	}
	for _, r := range page.Releases { // the newest first
		if r.Withdrawn != nil {
			continue
		}
		tag, err := tags.Parse(r.Tag)
		short := r.Tag
		if err == nil {
			short = tag.Series()
		}
		if count[short]++; m.Newest > 0 && count[short] > m.Newest {
			continue
		}
		out = append(out, Copy{Repository: page.Image, Tag: r.Tag, Digest: r.Digest, Kind: kindImage})
		if err != nil || !m.Floating {
			continue
		}
		moves := []string{tag.Short().String()}
		if intermediate, ok := tag.Intermediate(); ok {
			moves = append(moves, intermediate.String())
		}
		for _, each := range moves { // a single tag is its own, and known
			if !known[each] {
				known[each] = true
				out = append(out, Copy{Repository: page.Image, Tag: each, Digest: r.Digest, Kind: "floating"})
			}
		}
	}
	return out
}

// fewReleases is how many releases of an image are asked for their signatures at most without a look at its tags.
const fewReleases = 3

// withoutSignatures returns the repositories whose releases have no signatures: their lists of tags have none, nor has
// the registry one of the newest and the oldest release. A list alone is not enough, because a proxy lists only what it
// has served.
func (p *Publisher) withoutSignatures(ctx context.Context, ofImage [][]Copy) (map[string]bool, error) {
	unsigned := make([]bool, len(ofImage))
	err := each(ctx, p.jobs, ofImage, func(ctx context.Context, n int, copies []Copy) error {
		releases := slices.DeleteFunc(slices.Clone(copies), func(c Copy) bool { return c.Kind != kindImage })
		if len(releases) <= fewReleases {
			return nil
		}
		newest, oldest := releases[0], releases[len(releases)-1]
		p.step("looking for signatures in %s", newest.Repository)
		list, err := p.registry.Tags(ctx, newest.Repository)
		if err != nil {
			return ctx.Err() // the releases are asked instead
		}
		isListed := func(c Copy) bool { return slices.Contains(list, catalog.SignatureTag(c.Digest)) }
		if slices.ContainsFunc(releases, isListed) {
			return nil
		}
		for _, c := range []Copy{newest, oldest} {
			if found, err := p.signatureOf(ctx, c.Repository, c.Digest); err != nil || len(found) > 0 {
				return err
			}
		}
		unsigned[n] = true
		return nil
	})
	out := map[string]bool{}
	for n, copies := range ofImage {
		if unsigned[n] {
			out[copies[0].Repository] = true
		}
	}
	return out, err
}

// signatureOf returns the signature of a digest, if it has one under its tag.
func (p *Publisher) signatureOf(ctx context.Context, repository string, of digest.Digest) ([]Copy, error) {
	tag := catalog.SignatureTag(of)
	d, err := p.registry.Head(ctx, repository, tag)
	switch {
	case errors.Is(err, release.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return []Copy{{Repository: repository, Tag: tag, Digest: d, Kind: "signature"}}, nil
}

// IsChannel reports whether a copy is the tag of a version's channel, which may name a later version.
func (c Copy) IsChannel(v Version) bool { return c.Kind == kindCatalog && c.Tag == v.Channel }

// Source names a copy by its digest, as REPOSITORY@DIGEST.
func (c Copy) Source() string { return c.Repository + "@" + c.Digest.String() }

// Target names a copy on a mirror that keeps whole names, HOST or HOST/PATH. A path has no port and no
// upper case: registry.example.com:5000 stands there as registry.example.com_5000.
func (c Copy) Target(mirror string) (string, error) {
	mirror = strings.TrimSuffix(mirror, "/")
	host, path := c.Host()
	host = strings.Trim(strings.NewReplacer(":", "_", "[", "", "]", "").Replace(strings.ToLower(host)), "_.-")
	for strings.Contains(host, "__") {
		host = strings.ReplaceAll(host, "__", "_")
	}
	target := mirror + "/" + host + "/" + path + ":" + c.Tag
	named, err := reference.ParseNormalizedNamed(target)
	first, _, _ := strings.Cut(mirror, "/")
	if err == nil && strings.ContainsAny(first, ".:") && reference.Domain(named) != first {
		err = reference.ErrReferenceInvalidFormat
	}
	if err != nil || mirror == "" {
		return "", &Error{
			Kind: KindInput, Object: outside.Text(mirror), Text: "want HOST or HOST/PATH", Err: outside.Error(err),
		}
	}
	return target, nil
}

// Host returns the registry of a copy, and the path of its repository.
func (c Copy) Host() (host, path string) {
	host, path, _ = strings.Cut(c.Repository, "/")
	return host, path
}
