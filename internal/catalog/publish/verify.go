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

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
)

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
		c.report(tag, "names %s, and the channel %s", d, v.Digest)
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
		case n+furthest <= v.Version:
			before = max(before, n)
		case n >= v.Version+furthest:
			c.report(tag, "too far above the channel's version %d: it counts for nobody who knows that one", v.Version)
		}
	}
	if before > 0 {
		c.report(tag, "too far above version %d: nodes that know that one refuse it", before)
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
