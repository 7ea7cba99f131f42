// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

// maxCandidates bounds the HEAD requests spent on finding a tag's twin, or a newer
// release: the newest few are enough, since OBS publishes the tags of a build
// together.
const maxCandidates = 8

// Round is one round of questions: an answer of this round is not asked for
// again in it.
type Round struct {
	asker  *Asker
	poll   Poll
	heads  map[release.Reference]head
	listed map[string]bool           // repositories whose list was asked for in this round
	full   map[string][]tags.Tag     // and what was listed: whole while the repository is asked about
	counts map[string]record.TagList // and when, and what was left out
	last   release.Resolved          // who answered last
	late   map[string]bool           // repositories that were being asked when the poll was interrupted
	began  time.Time
	again  time.Time // of the second reading; zero: it has not begun to wait

	results map[release.Question]result
	held    map[digest.Digest]bool               // what the node has
	runs    map[release.Question][]digest.Digest // what runs, where that is known
	changed map[string]bool                      // repositories whose rule is another one than at the last answer
}

// NewRound begins a round. held are the digests that the node has, running those that
// run, by the question of their image.
func (a *Asker) NewRound(poll Poll, held map[digest.Digest]bool, running map[release.Question][]digest.Digest) *Round {
	return &Round{
		asker: a, poll: poll,
		heads: map[release.Reference]head{}, listed: map[string]bool{},
		full: map[string][]tags.Tag{}, counts: map[string]record.TagList{},
		results: map[release.Question]result{}, held: held, runs: running, changed: map[string]bool{},
		late: map[string]bool{}, began: a.Now(),
	}
}

// halfLife is how long the answers of a poll that was interrupted count.
const halfLife = 10 * time.Minute

// TakeUp goes on with the answers of a poll that was interrupted. What follows from
// them is found out anew: a person has changed something meanwhile.
func (i *Round) TakeUp(half *Round) {
	if half == nil || half.poll != i.poll || i.began.Sub(half.began).Abs() > halfLife {
		return
	}
	i.heads, i.listed, i.full, i.counts = half.heads, half.listed, half.full, half.counts
	i.late, i.began, i.again = half.late, half.began, half.again
}

type head struct {
	release.Resolved
	err error
}

// answer finds what the source has for a question.
func (i *Round) answer(ctx context.Context, q release.Question) (Offer, error) {
	offer := Offer{Question: q}
	follow, d, err := i.follow(ctx, q)
	if err != nil {
		return offer, err
	}
	answered := i.heads[release.Reference{Repository: q.Repository, Tag: follow}].Resolved
	offer.Host, offer.Mirror = answered.Host, answered.Mirror
	offer.Follow, err = i.release(ctx, q, follow, d)
	if errors.Is(err, release.ErrNotFound) {
		// OBS deletes tags by moving them to a digest that it deletes next: the tag
		// is there, so this is no alarm, and the next poll sees what it meant.
		return offer, fmt.Errorf("%s names a digest that is not there: %v", q, err) //nolint:errorlint // on purpose
	}
	if err != nil {
		return offer, err
	}
	if q.Convert && q.Tag != "" && follow == q.Tag && !i.isForm(q, follow, tags.Intermediate) {
		offer.Notes = append(offer.Notes, fmt.Sprintf("%s stays: no intermediate tag has its digest", follow))
	}
	short := i.heads[release.Reference{Repository: q.Repository, Tag: q.Tag}].Digest
	if short != "" && short != d && i.isForm(q, q.Tag, tags.Short) {
		offer.refuse(q.Tag, policy.RulePublishing, "no intermediate tag names its digest (yet)")
	}
	offer.Newest = offer.Follow
	if err := i.describeRunning(ctx, q); err != nil {
		return offer, err
	}
	return offer, i.newest(ctx, &offer)
}

// head asks what a tag names, once a round.
func (i *Round) head(ctx context.Context, repository, tag string) (digest.Digest, error) {
	ref := release.Reference{Repository: repository, Tag: tag}
	h, ok := i.heads[ref]
	if !ok {
		if h.Resolved, h.err = i.asker.resolve(ctx, ref); h.err == nil || ctx.Err() == nil {
			i.heads[ref] = h
		}
	}
	if h.err == nil {
		i.last = h.Resolved
	}
	return h.Digest, h.err
}

// follow finds the floating tag to follow and what it names now.
func (i *Round) follow(ctx context.Context, q release.Question) (string, digest.Digest, error) {
	dialect := i.asker.Policy.RuleFor(q.Repository).Dialect
	if q.Tag == "" {
		return i.newestOfAll(ctx, q)
	}
	if t, err := dialect.Parse(q.Tag); err == nil && q.Convert && t.Form() == tags.Short {
		return i.findIntermediate(ctx, q, t)
	}
	if tag := release.Floating(q.Tag, dialect); q.Convert && tag != q.Tag {
		d, err := i.head(ctx, q.Repository, tag)
		if !errors.Is(err, release.ErrNotFound) {
			return tag, d, err
		}
	}
	d, err := i.head(ctx, q.Repository, q.Tag)
	return q.Tag, d, err
}

// newestOfAll answers a placeholder that nothing gives a value for: with the newest
// that no rule refuses, else with the newest, so that it is told what is refused.
func (i *Round) newestOfAll(ctx context.Context, q release.Question) (string, digest.Digest, error) {
	list, err := i.list(ctx, q.Repository, false)
	if err != nil {
		return "", "", err
	}
	var refused release.Release
	tried := 0
	for _, t := range append(ofForm(list, tags.Intermediate), ofForm(list, tags.Short)...) {
		if tried++; tried > maxCandidates {
			break
		}
		d, err := i.head(ctx, q.Repository, t.Wire())
		if errors.Is(err, release.ErrNotFound) {
			continue // listed, but not there
		}
		rel := release.Release{Repository: q.Repository, Tag: t.Wire(), Digest: d}
		_, isRefused := i.asker.Record.Refuses(rel, i.asker.Policy.RuleFor(q.Repository))
		if err != nil || !isRefused {
			return rel.Tag, d, err
		}
		if refused.Tag == "" {
			refused = rel
		}
	}
	if refused.Tag != "" {
		return refused.Tag, refused.Digest, nil
	}
	return "", "", fmt.Errorf("%s: no known tag among %d: %w", q.Repository, len(list), release.ErrNotFound)
}

// findIntermediate finds the intermediate tag that has the short tag's digest; where there
// is none, the short tag stays: never a tag that the hosts do not serve.
func (i *Round) findIntermediate(
	ctx context.Context, q release.Question, short tags.Tag,
) (string, digest.Digest, error) {
	want, err := i.head(ctx, q.Repository, q.Tag)
	if err != nil {
		return "", "", err
	}
	last := i.asker.Record.Offers[q.String()].Follow
	seen := last.Digest == want
	known := last.Tag != q.Tag && i.isForm(q, last.Tag, tags.Intermediate)
	if seen && known {
		d, err := i.head(ctx, q.Repository, last.Tag)
		switch {
		case err == nil && d == want:
			return last.Tag, want, nil
		case err != nil && !errors.Is(err, release.ErrNotFound):
			return "", "", err
		}
		seen = false // its twin is gone: look for another
	}
	list, err := i.list(ctx, q.Repository, !seen)
	if err != nil {
		i.noList(q, err)
		return q.Tag, want, nil
	}
	if seen && !i.listed[q.Repository] {
		return q.Tag, want, nil // looked for in this very list before
	}
	tag, err := i.naming(ctx, want, q.Repository, list, tags.Intermediate, ofApp(short))
	if tag != "" || err != nil {
		return tag, want, err
	}
	if known {
		// The short tag is ahead of every intermediate one: they are being published.
		if d, err := i.head(ctx, q.Repository, last.Tag); err == nil {
			return last.Tag, d, nil
		}
	}
	return q.Tag, want, nil
}

// naming looks among the newest tags of a form that fit for one that names a
// digest; "": there is none.
func (i *Round) naming(
	ctx context.Context, want digest.Digest, repository string, list []tags.Tag, f tags.Form, fits func(tags.Tag) bool,
) (string, error) {
	tried := 0
	for _, t := range ofForm(list, f) {
		if !fits(t) || tried == maxCandidates {
			continue
		}
		tried++
		d, err := i.head(ctx, repository, t.Wire())
		if err == nil && d == want {
			return t.Wire(), nil
		}
		if err != nil && !errors.Is(err, release.ErrNotFound) {
			return "", err
		}
	}
	return "", nil
}

func (i *Round) isForm(q release.Question, tag string, f tags.Form) bool {
	t, err := i.asker.Policy.RuleFor(q.Repository).Dialect.Parse(tag)
	return err == nil && t.Form() == f
}

// release finds out what a digest is, once in its life. Only a missing long tag
// is looked for again, whenever the tags were listed anew: it may have been
// published after the floating one.
func (i *Round) release(ctx context.Context, q release.Question, tag string, d digest.Digest) (release.Release, error) {
	key := release.Key(q.Repository, d)
	r := i.asker.Record.Releases[key]
	ok := r.Config != "" // else it ran and was not there, but is now
	r.Repository, r.Tag, r.Digest = q.Repository, tag, d
	if ok && r.Long == "" {
		_, _ = i.list(ctx, q.Repository, false) // if it is due, it is due here
	}
	if ok && (r.Long != "" || !i.listed[q.Repository]) {
		return r, nil
	}
	var err error
	if !ok {
		if r.Build, err = i.asker.describe(ctx, q.Repository, d); err != nil {
			return release.Release{}, err
		}
	}
	if r.Long == "" {
		if r.Long, err = i.long(ctx, q, tag, d, !ok); err != nil {
			return release.Release{}, err
		}
	}
	i.asker.Record.Releases.Set(key, r)
	return r, nil
}

// long finds the long tag that has the digest. A mirror need not have any, and
// need not serve lists: then there is none, and the digest serves.
func (i *Round) long(
	ctx context.Context, q release.Question, tag string, want digest.Digest, fresh bool,
) (string, error) {
	t, err := i.asker.Policy.RuleFor(q.Repository).Dialect.Parse(tag)
	if err != nil {
		return "", nil //nolint:nilerr // a foreign tag has no long form
	}
	if t.Form() == tags.Long {
		return tag, nil
	}
	list, err := i.list(ctx, q.Repository, fresh)
	if err != nil && ctx.Err() != nil {
		return "", err // else there would be none for good
	}
	if err != nil {
		i.noList(q, err)
		return "", nil
	}
	return i.naming(ctx, want, q.Repository, list, tags.Long, func(l tags.Tag) bool { return isBuildOf(l, t) })
}
