// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// maxLater is how many version tags above the channel's version are read.
const maxLater = 1000

// Current is Read for callers that act on the releases of a channel: it also refuses a version if the registry shows
// a newer one.
func (p *Publisher) Current(ctx context.Context, channel string) (Version, error) {
	v, err := p.Read(ctx, channel)
	if err != nil {
		return v, err
	}
	_, err = p.listed(ctx, v, channel)
	return v, err
}

// listed returns the tags of the catalog, after a check that the channel did not go back.
func (p *Publisher) listed(ctx context.Context, base Version, channel string) ([]string, error) {
	tags, err := p.client.Tags(ctx, p.repository)
	if err != nil || p.verifier == nil || len(laterTags(base.Version, channel, tags)) == 0 {
		return tags, err
	}
	merged, err := p.mergedOps(ctx, base)
	if err != nil {
		return tags, err
	}
	ops, _, err := p.readOps(ctx, pendingOps(channel, tags, merged))
	if err != nil {
		return tags, err
	}
	return tags, p.checkBehind(ctx, base, channel, tags, merged, ops)
}

// laterTags returns the version tags of a channel above a version.
func laterTags(version uint64, channel string, tags []string) []string {
	var later []string
	for _, tag := range tags {
		of, n, ok := catalog.ParseVersionTag(tag)
		if ok && of == channel && n > version && n-version < furthest {
			later = append(later, tag)
		}
	}
	return later
}

// checkBehind refuses a channel that went back: a later version has ops which are neither in the
// channel nor among those that can be folded into it, so that a withdrawal may be among them. The
// later version of a publisher that was stopped, or that is under way, has none: its ops are there.
// Only versions that a key has signed count, and without keys none: whoever may push could forge one.
// Who hides a signature might as well hide the tag.
func (p *Publisher) checkBehind(
	ctx context.Context, base Version, channel string, tags, merged []string, ops []catalog.Op,
) error {
	if p.verifier == nil {
		return nil
	}
	later, err := p.laterVersions(ctx, base.Version, channel, tags)
	if err != nil || len(later) == 0 {
		return err
	}
	has := map[string]bool{}
	for _, op := range merged {
		has[op] = true
	}
	for _, op := range ops {
		has[op.Tag] = true
	}
	known := map[digest.Digest]bool{}
	for n := 0; n < len(later); n++ {
		v := later[n]
		if known[v.Digest] {
			continue
		}
		known[v.Digest] = true
		lacks, err := p.lacksOp(ctx, v, has)
		if err != nil {
			return err
		}
		if lacks != "" {
			return p.behind(ctx, base, channel, v, "has "+lacks+", which is neither in the channel nor in the registry any more")
		}
		if v.Previous == "" || v.Previous == base.Digest || v.Previous == base.Previous || known[v.Previous] {
			continue
		}
		before, err := p.read(ctx, string(v.Previous))
		switch {
		case errors.Is(err, release.ErrNotFound), isKind(err, KindUnsigned):
			return p.behind(ctx, base, channel, v, "follows one that is not there any more")
		case err != nil:
			return err
		case before.Version > base.Version && before.Channel == channel && len(later) < maxLater:
			later = append(later, before)
		}
	}
	return nil
}

// errMoved: the channel names another version than a moment before.
var errMoved = errors.New("it has another version now")

// behind returns the error for a channel that went back; with KindRaced where another publisher has
// published since it was read.
func (p *Publisher) behind(ctx context.Context, base Version, channel string, later Version, why string) error {
	is, err := p.head(ctx, channel)
	switch {
	case err != nil:
		return err
	case is != base.Digest:
		return &Error{Kind: KindRaced, Object: channel, Text: "read while another publisher published it", Err: errMoved}
	}
	return refuse(KindOlder, channel, "the channel went back from %d to %d: version %d %s",
		later.Version, base.Version, later.Version, why)
}

// lacksOp returns an op of a version that is not among these; "": it has no such op.
func (p *Publisher) lacksOp(ctx context.Context, v Version, has map[string]bool) (string, error) {
	listed, err := p.mergedOps(ctx, v)
	switch {
	case errors.Is(err, release.ErrNotFound):
		return "a list of ops", nil
	case err != nil:
		return "", err
	}
	for _, op := range slices.Concat(v.Merged, listed) {
		if !has[op] {
			return op, nil
		}
	}
	return "", nil
}

// laterVersions returns the versions of a channel above one, the newest first; with keys, those that are
// signed. What is under a version tag and is no such version does not count.
func (p *Publisher) laterVersions(
	ctx context.Context, version uint64, channel string, tags []string,
) ([]Version, error) {
	later := laterTags(version, channel, tags)
	if len(later) > maxLater {
		return nil, refuse(KindOlder, channel, "%d version tags are above version %d, want at most %d",
			len(later), version, maxLater)
	}
	var mu sync.Mutex
	var out []Version
	err := each(ctx, later, func(ctx context.Context, _ int, tag string) error {
		v, err := p.read(ctx, tag)
		_, n, _ := catalog.ParseVersionTag(tag)
		_, isBad := errors.AsType[*catalog.Error](err)
		switch {
		case isKind(err, KindUnsigned), isBad && p.verifier == nil, errors.Is(err, release.ErrNotFound):
			return nil
		case err != nil:
			return fmt.Errorf("version %d, which is above the channel: %w", n, err)
		case p.verifier != nil && v.SignedBy == "", v.Name != p.name, v.Channel != channel, v.Version != n:
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		out = append(out, v)
		return nil
	})
	slices.SortFunc(out, func(a, b Version) int { return int(b.Version) - int(a.Version) })
	return out, err
}
