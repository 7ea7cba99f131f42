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

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
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
	later, err := (&View{p: p, Version: on}).laterVersions(ctx, laterTags(on.Version, on.Channel, tags))
	if err != nil {
		return nil, err
	}
	is, err := p.past(ctx, head)
	switch {
	case err != nil && !isFinding(err):
		return nil, err
	case err == nil && is.Name == p.name && is.Channel == on.Channel:
		later = append(later, is)
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

// nameBase adds to the error of a channel whose newest version has no valid signature the newest one that has.
func (p *Publisher) nameBase(ctx context.Context, channel string, k keys, err error) error {
	tags, errTags := p.registry.Tags(ctx, p.repository)
	if errTags != nil {
		return err
	}
	var versions []uint64
	for _, tag := range tags {
		if of, n, ok := catalog.ParseVersionTag(tag); ok && of == channel {
			versions = append(versions, n)
		}
	}
	slices.Sort(versions)
	for _, n := range slices.Backward(versions[max(0, len(versions)-maxLater):]) {
		if v, errRead := p.readVersion(ctx, channel, n, k); errRead == nil && v.SignedBy != "" {
			if e, ok := errors.AsType[*Error](err); ok {
				e.Base = n
			}
			break
		}
	}
	return err
}

// base is the version that the next one builds upon in the place of the channel's.
type base struct {
	version  uint64
	replaced *digest.Digest // what the channel's tag named when the base was read first
}

// readBase reads the version that the next one builds upon: the channel's, or the base that was chosen, until the
// channel names another version than when it was chosen.
func (v *View) readBase(ctx context.Context, channel string) (err error) {
	p := v.p
	if v.base == nil {
		v.Version, err = p.newest(ctx, channel, v.keys)
		v.head = v.Digest
		return err
	}
	if v.head, err = p.head(ctx, channel); err != nil {
		return err
	}
	if v.base.replaced == nil {
		v.base.replaced = &v.head
	}
	isReplaced := *v.base.replaced != v.head
	if !isReplaced {
		v.Version, err = p.readVersion(ctx, channel, v.base.version, v.keys)
	}
	if err == nil && !isReplaced && v.head != "" { // nodes that have accepted it take none below
		is, errHead := p.past(ctx, v.head)
		if errHead != nil && !isFinding(errHead) {
			return errHead
		}
		v.replaced = is.Version
	}
	if err == nil && len(p.keys) > 0 { // what was signed with keys that are trusted only for the base does not count
		v.keys, err = newKeys(p.trust.Require, p.trust.Accept, p.signing()...)
	}
	if err == nil && isReplaced {
		v.Version, err = p.newest(ctx, channel, v.keys)
		v.head = v.Digest
	}
	return err
}

// laterTags returns the version tags of a channel above a version, the lowest first.
func laterTags(version uint64, channel string, tags []string) []string {
	var later []string
	for _, tag := range tags {
		of, n, ok := catalog.ParseVersionTag(tag)
		if ok && of == channel && n > version && n-version < catalog.MaxJump {
			later = append(later, tag)
		}
	}
	slices.SortFunc(later, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
	return later
}

// nextVersion is one above the channel's, all of its version tags, and the version that a base replaces.
func (v *View) nextVersion() uint64 {
	highest := v.Version.Version
	if later := laterTags(highest, v.Channel, v.tags); len(later) > 0 {
		_, highest, _ = catalog.ParseVersionTag(later[len(later)-1])
	}
	if v.replaced > highest && v.replaced-v.Version.Version < catalog.MaxJump {
		highest = v.replaced
	}
	return highest + 1
}

// laterVersions returns the versions behind tags; with keys, those that are signed. What is under a version tag and is
// no such version does not count.
func (v *View) laterVersions(ctx context.Context, tags []string) ([]Version, error) {
	p := v.p
	tags = tags[:min(len(tags), maxLater)]
	all := make([]Version, len(tags))
	err := each(ctx, p.jobs, tags, func(ctx context.Context, n int, tag string) error {
		is, err := p.read(ctx, tag, v.Channel, v.keys)
		_, number, _ := catalog.ParseVersionTag(tag)
		_, isBad := errors.AsType[*catalog.Error](err)
		switch {
		case isKind(err, KindUnsigned), isBad && !v.keys.areThere(), errors.Is(err, release.ErrNotFound):
			return nil
		case err != nil:
			return fmt.Errorf("version %d is newer than the channel: %w", number, err)
		case v.keys.areThere() && is.SignedBy == "", is.Name != p.name, is.Channel != v.Channel, is.Version != number:
			return nil
		}
		all[n] = is
		return nil
	})
	all = slices.DeleteFunc(all, func(v Version) bool { return v.Digest == "" })
	slices.Reverse(all)
	return all, err
}

// checkBehind refuses a channel that went back: a later version has ops which are neither in the channel nor among
// those that can be folded into it, so that a withdrawal may be among them. The later version of a publisher that was
// stopped, or that is under way, has none: its ops are there. Only versions that a key has signed count, and without
// keys none: whoever may push could forge one. Who hides a signature might as well hide the tag.
func (v *View) checkBehind(ctx context.Context, tags []string) error {
	if !v.keys.areThere() || len(tags) == 0 {
		return nil
	}
	later, err := v.laterVersions(ctx, tags)
	if err != nil {
		return err
	}
	has, known := v.ops(), map[digest.Digest]bool{}
	for n := 0; n < len(later); n++ {
		is := later[n]
		if known[is.Digest] {
			continue
		}
		known[is.Digest] = true
		lacks, err := v.lacksOp(ctx, is, has)
		if err != nil {
			return err
		}
		if lacks != "" {
			return v.behind(ctx, is, "has "+lacks+", which is in neither the channel nor the registry any more")
		}
		if is.Previous == "" || is.Previous == v.Digest || is.Previous == v.Previous || known[is.Previous] {
			continue
		}
		before, err := v.p.past(ctx, is.Previous)
		switch {
		case errors.Is(err, release.ErrNotFound):
			return v.behind(ctx, is, "follows a version that no longer exists")
		case err != nil:
			return err
		case before.Version > v.Version.Version && before.Channel == v.Channel && len(later) < 2*maxLater:
			later = append(later, before)
		}
	}
	return nil
}

// ops returns the tags of the ops that the channel has or can have, also of those that a freeze keeps out.
func (v *View) ops() map[string]bool {
	has := setOf(v.merged)
	for _, op := range v.Pending {
		has[op.Tag] = true
	}
	for _, w := range v.Waiting {
		if known, ok := v.p.cache.ops.get(v.Channel + " " + w.Op); ok && known.why == "" {
			has[w.Op] = true
		}
	}
	return has
}

// errLeftOut: a base was chosen, and no key says which later ops count.
var errLeftOut = errors.New("left out: not in the version that --base names")

// errMoved: the channel names another version than a moment before.
var errMoved = errors.New("has another version now")

// behind returns the error for a channel that went back; with KindRaced where another publisher has published since it
// was read.
func (v *View) behind(ctx context.Context, later Version, why string) error {
	is, err := v.p.head(ctx, v.Channel)
	switch {
	case err != nil:
		return err
	case is != v.head:
		return &Error{Kind: KindRaced, Object: v.Channel, Text: "read while another publisher published it", Err: errMoved}
	}
	return refuse(KindOlder, v.Channel, "the channel went back from %d to %d: version %d %s",
		later.Version, v.Version.Version, later.Version, why)
}

// lacksOp returns an op of a version that is not among these; "": it has no such op.
func (v *View) lacksOp(ctx context.Context, is Version, has map[string]bool) (string, error) {
	listed, err := v.p.mergedOps(ctx, is)
	switch {
	case errors.Is(err, release.ErrNotFound):
		return "a list of ops", nil
	case err != nil:
		return "", err
	}
	for _, op := range slices.Concat(is.Merged, listed) {
		if !has[op] {
			return op, nil
		}
	}
	return "", nil
}
