// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/tags"
)

// maxCandidates bounds the HEAD requests spent on finding a tag's twin: the
// newest few are enough, since OBS publishes the tags of a build together.
const maxCandidates = 8

// keptTags bounds the tags that the record keeps of one repository, the newest.
const keptTags = 256

// inquiry is one round of questions: an answer of this round is not asked for
// again in it.
type inquiry struct {
	agent  *Agent
	poll   Poll
	heads  map[Reference]head
	listed map[string]bool // repositories whose list was asked for in this round
	last   Resolved        // who answered last
}

type head struct {
	Resolved
	err error
}

// answer finds what the source has for a question.
func (i *inquiry) answer(ctx context.Context, q Question) (Offer, error) {
	offer := Offer{Question: q}
	follow, d, err := i.follow(ctx, q)
	if err != nil {
		return offer, err
	}
	if offer.Follow, err = i.release(ctx, q, follow, d); err != nil {
		return offer, err
	}
	newest, d, notes, err := i.newest(ctx, q, follow, d)
	if err != nil {
		return offer, err
	}
	offer.Notes = notes
	offer.Newest, err = i.release(ctx, q, newest, d)
	return offer, err
}

// head asks what a tag names, once a round.
func (i *inquiry) head(ctx context.Context, repository, tag string) (digest.Digest, error) {
	ref := Reference{Repository: repository, Tag: tag}
	h, ok := i.heads[ref]
	if !ok {
		h.Resolved, h.err = i.agent.Source.Resolve(ctx, ref)
		i.heads[ref] = h
	}
	if h.err == nil {
		i.last = h.Resolved
	}
	return h.Digest, h.err
}

// follow finds the floating tag to follow and what it names now.
func (i *inquiry) follow(ctx context.Context, q Question) (string, digest.Digest, error) {
	dialect := i.agent.Policy.rule(q.Repository).Dialect
	if q.Tag == "" {
		return i.newestOfAll(ctx, q)
	}
	t, err := dialect.Parse(q.Tag)
	switch {
	case err != nil || !q.Convert || t.Form() == tags.Intermediate:
		d, err := i.head(ctx, q.Repository, q.Tag)
		return q.Tag, d, err
	case t.Form() == tags.Long:
		return i.intermediateOf(ctx, q, t)
	default:
		return i.twin(ctx, q, t)
	}
}

// newestOfAll answers a placeholder that nothing gives a value for.
func (i *inquiry) newestOfAll(ctx context.Context, q Question) (string, digest.Digest, error) {
	list, err := i.list(ctx, q.Repository, false)
	if err != nil {
		return "", "", err
	}
	for _, form := range []tags.Form{tags.Intermediate, tags.Short} {
		if of := ofForm(list, form); len(of) > 0 {
			newest := of[0].Wire()
			d, err := i.head(ctx, q.Repository, newest)
			return newest, d, err
		}
	}
	return "", "", fmt.Errorf("%s: no known tag among %d: %w", q.Repository, len(list), ErrNotFound)
}

// intermediateOf follows the intermediate tag of a long one, if it is served.
func (i *inquiry) intermediateOf(ctx context.Context, q Question, t tags.Tag) (string, digest.Digest, error) {
	if im, ok := t.Intermediate(); ok {
		d, err := i.head(ctx, q.Repository, im.Wire())
		if !errors.Is(err, ErrNotFound) {
			return im.Wire(), d, err
		}
	}
	d, err := i.head(ctx, q.Repository, q.Tag)
	return q.Tag, d, err
}

// twin finds the intermediate tag that has the short tag's digest; where there
// is none, the short tag stays: never a tag that the hosts do not serve.
func (i *inquiry) twin(ctx context.Context, q Question, short tags.Tag) (string, digest.Digest, error) {
	want, err := i.head(ctx, q.Repository, q.Tag)
	if err != nil {
		return "", "", err
	}
	known, seen := i.agent.record.Releases[releaseKey(q.Repository, want)]
	if i.isTwin(q, known.Tag, short) {
		return known.Tag, want, nil
	}
	list, err := i.list(ctx, q.Repository, !seen)
	if err != nil {
		i.noList(q, err)
		return q.Tag, want, nil
	}
	if seen && !i.listed[q.Repository] {
		return q.Tag, want, nil // looked for in this very list before
	}
	tried := 0
	for _, t := range ofForm(list, tags.Intermediate) {
		if t.App() != short.App() || tried == maxCandidates {
			continue
		}
		tried++
		if d, err := i.head(ctx, q.Repository, t.Wire()); err == nil && d == want {
			return t.Wire(), want, nil
		} else if err != nil && !errors.Is(err, ErrNotFound) {
			return "", "", err
		}
	}
	return q.Tag, want, nil
}

func (i *inquiry) isTwin(q Question, tag string, short tags.Tag) bool {
	t, err := i.agent.Policy.rule(q.Repository).Dialect.Parse(tag)
	return err == nil && t.Form() == tags.Intermediate && t.App() == short.App()
}

// newest finds the newest release of follow's form that policy allows and that
// is really there.
func (i *inquiry) newest(
	ctx context.Context, q Question, follow string, d digest.Digest,
) (string, digest.Digest, []string, error) {
	rule := i.agent.Policy.rule(q.Repository)
	from, err := rule.Dialect.Parse(follow)
	if err != nil || rule.Updates < tags.Revision {
		return follow, d, nil, nil
	}
	list, err := i.list(ctx, q.Repository, false)
	if err != nil {
		i.noList(q, err)
		return follow, d, []string{fmt.Sprintf("newer tags unknown: no tag list: %v", err)}, nil
	}
	var notes []string
	if top, ok := tags.Newest(list, from, tags.Major); ok {
		if c := tags.ChangeBetween(from, top); c > rule.Updates {
			notes = append(notes, fmt.Sprintf("%s not offered: %s is more than updates: %s", top, c, rule.Updates))
		}
	}
	for range maxCandidates {
		top, ok := tags.Newest(list, from, rule.Updates)
		if !ok || top.Wire() == follow {
			break
		}
		found, err := i.head(ctx, q.Repository, top.Wire())
		if err == nil {
			return top.Wire(), found, notes, nil
		}
		if !errors.Is(err, ErrNotFound) {
			return "", "", nil, err
		}
		notes = append(notes, fmt.Sprintf("%s not offered: listed, but not there", top))
		list = slices.DeleteFunc(list, func(t tags.Tag) bool { return t == top })
	}
	return follow, d, notes, nil
}

// noList says that a host serves tags but no list of them, as a plain mirror
// may: what is followed can still be offered, by digest.
func (i *inquiry) noList(q Question, err error) {
	i.agent.Log.Debug("no tag list", "cycle", i.agent.cycle, "repository", q.Repository, "err", err)
}

// release finds out what a digest is, once in its life. Only a missing long tag
// is looked for again, whenever the tags were listed anew: it may have been
// published after the floating one.
func (i *inquiry) release(ctx context.Context, q Question, tag string, d digest.Digest) (Release, error) {
	key := releaseKey(q.Repository, d)
	known, ok := i.agent.record.Releases[key]
	if ok && (known.Long != "" || !i.listed[q.Repository]) && known.Tag == tag {
		return known, nil
	}
	r := known
	r.Repository, r.Tag, r.Digest = q.Repository, tag, d
	var err error
	if !ok {
		if r.Build, err = i.agent.Source.Describe(ctx, q.Repository, d); err != nil {
			return Release{}, err
		}
	}
	if r.Long == "" {
		if r.Long, err = i.long(ctx, q, tag, d, !ok); err != nil {
			return Release{}, err
		}
	}
	if i.agent.record.Releases == nil {
		i.agent.record.Releases = map[string]Release{}
	}
	i.agent.record.Releases[key] = r
	return r, nil
}

// long finds the long tag that has the digest. A mirror need not have any, and
// need not serve lists: then there is none, and the digest serves.
func (i *inquiry) long(
	ctx context.Context, q Question, tag string, want digest.Digest, fresh bool,
) (string, error) {
	t, err := i.agent.Policy.rule(q.Repository).Dialect.Parse(tag)
	if err != nil {
		return "", nil //nolint:nilerr // a foreign tag has no long form
	}
	if t.Form() == tags.Long {
		return tag, nil
	}
	list, err := i.list(ctx, q.Repository, fresh)
	if err != nil {
		i.noList(q, err)
		return "", nil
	}
	tried := 0
	for _, l := range ofForm(list, tags.Long) {
		if !sameFloor(l, t) || tried == maxCandidates {
			continue
		}
		tried++
		d, err := i.head(ctx, q.Repository, l.Wire())
		if err == nil && d == want {
			return l.Wire(), nil
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return "", err
		}
	}
	return "", nil
}

// sameFloor reports whether the long tag is a build of the floating one.
func sameFloor(long, floating tags.Tag) bool {
	return long.App() == floating.App() && (floating.Form() == tags.Short || long.Rev() == floating.Rev())
}

func releaseKey(repository string, d digest.Digest) string { return repository + "@" + d.String() }
