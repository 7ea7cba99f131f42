// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// ReadVersion returns an earlier version of a channel, which was not pruned.
func (p *Publisher) ReadVersion(ctx context.Context, channel string, version uint64) (Version, error) {
	tag := catalog.VersionTag(channel, version)
	p.step("reading %s", tag)
	v, err := p.read(ctx, tag)
	switch {
	case errors.Is(err, release.ErrNotFound):
		return v, refuse(KindImage, tag, "the registry has no such version: it was pruned, or never published")
	case err == nil && (v.Channel != channel || v.Name != p.name || v.Version != version):
		err = refuse(KindRaced, tag, "the tag names version %d of channel %s of %s", v.Version, v.Channel, v.Name)
	}
	return v, err
}

// Before returns the newest version of a channel that has other releases than a version.
func (p *Publisher) Before(ctx context.Context, v Version) (Version, error) {
	var found Version
	isCut, err := p.back(ctx, v, func(each Version) (bool, error) {
		if slices.Equal(each.Pages, v.Pages) {
			return true, nil
		}
		found = each
		return false, nil
	})
	switch {
	case err != nil:
		return found, err
	case isCut:
		return found, refuse(KindImage, v.Channel,
			"the version before %d was pruned, or no trusted key has signed it", v.Version)
	case found.Digest == "":
		return found, refuse(KindImage, v.Channel, "no earlier version has other releases")
	}
	return found, nil
}

// Reverted returns the request that has a channel offer what an earlier version offered: what came since is withdrawn,
// with the earlier release to run instead, and what was withdrawn since is promoted again.
func (p *Publisher) Reverted(ctx context.Context, v, earlier Version, reason string) (Request, error) {
	if reason == "" {
		reason = fmt.Sprintf("reverted to version %d", earlier.Version)
	}
	r := Request{Channel: v.Channel, Do: catalog.ActionWithdraw, Reason: reason}
	var differ []string
	for _, ref := range v.Pages {
		if was, _ := earlier.Page(ref.Image); was != ref {
			differ = append(differ, ref.Image)
		}
	}
	if len(differ) == 0 {
		return r, nil
	}
	now, err := p.Pages(ctx, v, differ...)
	if err != nil {
		return r, err
	}
	before, err := p.Pages(ctx, earlier, differ...)
	if err != nil {
		return r, err
	}
	for _, image := range differ {
		p.revertPage(&r, image, now[image], before[image])
	}
	return r, nil
}

// revertPage adds the changes of one image.
func (p *Publisher) revertPage(r *Request, image string, now, before catalog.Page) {
	for _, is := range now.Releases {
		was := find(before, is.Tag)
		c := catalog.Change{Image: image, Release: is}
		switch isBack := was != nil && was.Withdrawn == nil; {
		case isBack && !isSame(is, *was):
			c.Release = *was
			c.Release.Op = ""
			r.Again = append(r.Again, c)
		case !isBack && is.Withdrawn == nil:
			w := catalog.Withdrawal{At: p.now().UTC(), Reason: r.Reason}
			if was != nil {
				w.Reason, w.To = was.Withdrawn.Reason, was.Withdrawn.To
			} else if top := newest(before); top != nil {
				w.To = top.Tag
			}
			c.Release.Op, c.Release.Withdrawn = "", &w
			r.Changes = append(r.Changes, c)
		}
	}
}
