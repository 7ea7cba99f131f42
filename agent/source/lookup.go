// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

// maxCandidates limits the tags that a search resolves. The newest few are enough, because OBS publishes the tags of a
// build together.
const maxCandidates = 8

// lookup answers one question of a round.
type lookup struct {
	*Round
	question release.Question
	rule     policy.Rule
	by       release.Resolved // the last answer about a tag
}

// answer returns the source's offer.
func (l *lookup) answer(ctx context.Context) (Offer, error) {
	q := l.question
	offer := Offer{Question: q}
	follow, d, err := l.followedTag(ctx)
	if errors.Is(err, release.ErrUnlisted) {
		follow, d, err = l.unlistedTag(ctx, err)
	}
	if err != nil {
		return offer, err
	}
	by := l.resolved[release.Reference{Repository: q.Repository, Tag: follow}].Resolved
	offer.Host, offer.Mirror = by.Host, by.Mirror
	offer.Follow, err = l.release(ctx, follow, d)
	if errors.Is(err, release.ErrNotFound) {
		// OBS deletes a tag by moving it to a digest that it deletes next. The tag still exists, so this must not be
		// ErrNotFound, which is an alarm.
		//nolint:errorlint // on purpose
		return offer, fmt.Errorf("%s names a digest that the registry does not have: %v", q, err)
	}
	if err != nil {
		return offer, err
	}
	if q.Convert && q.Tag != "" && follow == q.Tag && l.isForm(follow, tags.Short) && l.hasIntermediate(ctx) {
		offer.Notes = append(offer.Notes, fmt.Sprintf("%s kept: no intermediate tag has its digest", follow))
	}
	short := l.resolved[release.Reference{Repository: q.Repository, Tag: q.Tag}].Digest
	if short != "" && short != d && l.isForm(q.Tag, tags.Short) {
		offer.refuse(q.Tag, policy.RulePublishing, "no intermediate tag names its digest (yet)")
	}
	offer.Newest = offer.Follow
	if err := l.describeRunning(ctx); err != nil {
		return offer, err
	}
	err = l.addNewer(ctx, &offer)
	l.refuseMissing(&offer)
	return offer, err
}

// resolve returns the digest of a tag, with one request per round. It probably is want, which is described next; empty:
// any.
func (l *lookup) resolve(ctx context.Context, tag string, want digest.Digest) (digest.Digest, error) {
	ref := release.Reference{Repository: l.question.Repository, Tag: tag}
	known, ok := l.resolved[ref]
	if !ok {
		if known.Resolved, known.err = l.askTag(ctx, ref, want); known.err == nil || ctx.Err() == nil {
			l.resolved[ref] = known
		}
	}
	if known.err == nil {
		l.by = known.Resolved
	}
	return known.Digest, known.err
}

// followedTag returns the floating tag to follow and its digest.
func (l *lookup) followedTag(ctx context.Context) (string, digest.Digest, error) {
	q := l.question
	if q.Tag == "" {
		return l.newestTag(ctx)
	}
	if t, err := l.rule.Scheme.Parse(q.Tag); err == nil && q.Convert && t.Form() == tags.Short {
		return l.intermediateTag(ctx, t)
	}
	if tag := release.Floating(q.Tag, l.rule.Scheme); q.Convert && tag != q.Tag {
		d, err := l.resolve(ctx, tag, "")
		if !errors.Is(err, release.ErrNotFound) {
			return tag, d, err
		}
	}
	d, err := l.resolve(ctx, q.Tag, "")
	return q.Tag, d, err
}

// newestTag returns the tag for a placeholder without a value: the newest that no rule refuses, else the newest, so
// that the status shows the refusal.
func (l *lookup) newestTag(ctx context.Context) (string, digest.Digest, error) {
	list, err := l.list(ctx, false)
	if err != nil {
		return "", "", err
	}
	var refused release.Release
	var cause error // why the source serves none
	floating := withoutStamps(append(ofForm(list, tags.Intermediate), ofForm(list, tags.Short)...))
	if l.rule.Scheme.Pattern() != "" { // the pattern selects one series
		released := slices.DeleteFunc(ofForm(list, tags.Single), func(t tags.Tag) bool { return t.Pre() != "" })
		floating = append(floating, released...)
	}
	for _, t := range floating[:min(len(floating), maxCandidates)] {
		d, err := l.resolve(ctx, t.String(), "")
		if isUnusable(err) {
			if cause == nil && !errors.Is(err, release.ErrNotFound) {
				cause = err
			}
			continue
		}
		rel := release.Release{Repository: l.question.Repository, Tag: t.String(), Digest: d}
		if _, isRefused := l.refuses(rel); err != nil || !isRefused {
			return rel.Tag, d, err
		}
		if refused.Tag == "" {
			refused = rel
		}
	}
	if refused.Tag != "" {
		return refused.Tag, refused.Digest, nil
	}
	if cause != nil {
		return "", "", cause
	}
	return "", "", fmt.Errorf("%s: none of its %d tags with a version can be followed: %w",
		l.question.Repository, len(list), release.ErrNotFound)
}

// withoutStamps removes dates, hashes and build numbers if the list also has versions.
func withoutStamps(list []tags.Tag) []tags.Tag {
	if !slices.ContainsFunc(list, func(t tags.Tag) bool { return !t.IsStamp() }) {
		return list
	}
	return slices.DeleteFunc(list, tags.Tag.IsStamp)
}

// intermediateTag returns the intermediate tag with the digest of the short tag; without
// one, the short tag.
func (l *lookup) intermediateTag(ctx context.Context, short tags.Tag) (string, digest.Digest, error) {
	q := l.question
	want, err := l.resolve(ctx, q.Tag, "")
	if err != nil {
		return "", "", err
	}
	last := l.asker.Record.Offers[q.String()].Follow
	sameDigest := last.Digest == want
	wasIntermediate := last.Tag != q.Tag && l.isForm(last.Tag, tags.Intermediate)
	if sameDigest && wasIntermediate {
		d, err := l.resolve(ctx, last.Tag, "")
		switch {
		case err == nil && d == want:
			return last.Tag, want, nil
		case err != nil && !errors.Is(err, release.ErrNotFound):
			return "", "", err
		}
		sameDigest = false // the intermediate tag has changed: search again
	}
	list, err := l.list(ctx, !sameDigest)
	if err != nil || sameDigest && !l.lists.asked[q.Repository] { // only a new list can change the result
		return q.Tag, want, nil //nolint:nilerr // a host need not serve lists
	}
	tag, err := l.findTag(ctx, want, list, tags.Intermediate, sameApp(short), "")
	if tag != "" || err != nil {
		return tag, want, err
	}
	if wasIntermediate { // the short tag is published first, the intermediate one follows
		if d, err := l.resolve(ctx, last.Tag, ""); err == nil {
			return last.Tag, d, nil
		}
	}
	return q.Tag, want, nil
}

// findTag searches the newest tags of a form that satisfy fits for one with a digest. It returns "" if there is none.
// first is the digest that the first of them probably names.
func (l *lookup) findTag(
	ctx context.Context, want digest.Digest, list []tags.Tag, f tags.Form, fits func(tags.Tag) bool, first digest.Digest,
) (string, error) {
	tried := 0
	for _, t := range ofForm(list, f) {
		if !fits(t) {
			continue
		}
		if tried++; tried > maxCandidates {
			break
		}
		d, err := l.resolve(ctx, t.String(), first)
		first = ""
		if err == nil && d == want {
			return t.String(), nil
		}
		if err != nil && !isUnusable(err) {
			return "", err
		}
	}
	return "", nil
}

// list returns the tags of the repository, newest first.
func (l *lookup) list(ctx context.Context, force bool) ([]tags.Tag, error) {
	repository := l.question.Repository
	var known []string
	for ref, is := range l.resolved {
		if ref.Repository == repository && is.err == nil {
			known = append(known, ref.Tag)
		}
	}
	slices.Sort(known)
	list, err := l.lists.list(ctx, repository, l.source(repository), known, force)
	if err != nil {
		l.asker.Log.Debug("no tag list", "repository", l.question.Repository, "err", err)
	}
	return list, err
}

// hasIntermediate reports whether the repository is known to have intermediate tags; most have none.
func (l *lookup) hasIntermediate(ctx context.Context) bool {
	list, err := l.list(ctx, false)
	return err == nil && len(ofForm(list, tags.Intermediate)) > 0
}

func (l *lookup) isForm(tag string, f tags.Form) bool {
	t, err := l.rule.Scheme.Parse(tag)
	return err == nil && t.Form() == f
}

// release returns the release of a digest, described once. A missing long tag is searched again in each new list: it
// may be published after the floating tag.
func (l *lookup) release(ctx context.Context, tag string, d digest.Digest) (release.Release, error) {
	repository := l.question.Repository
	key := release.Key(repository, d)
	r := l.asker.Record.Releases[key]
	known := r.Config != "" // otherwise the source did not have it, see describeRunning
	r.Repository, r.Tag, r.Digest = repository, tag, d
	if known && r.Long == "" {
		_, _ = l.list(ctx, false) // lists the tags if they are due
	}
	if known && (r.Long != "" || !l.lists.asked[repository]) {
		return r, nil
	}
	var err error
	if r.Long == "" { // before the description, which needs the manifest that the long tag names
		if r.Long, err = l.longTag(ctx, tag, d, !known); err != nil {
			return release.Release{}, err
		}
	}
	if !known {
		r.Build, err = l.describe(ctx, repository, d)
		if errors.Is(err, release.ErrNotFound) && l.listing.IsListed(repository) {
			return l.nextListed(ctx, tag, d, err)
		}
		if err != nil {
			return release.Release{}, err
		}
	}
	l.asker.Record.Releases.Set(key, r)
	return r, nil
}

// longTag finds the long tag with a digest. It returns "" if there is none: a mirror may have no long tags, or no
// lists. For a new digest it requests a new list, and reads the manifest.
func (l *lookup) longTag(ctx context.Context, tag string, want digest.Digest, isNew bool) (string, error) {
	if is, ok := l.listing.Find(l.question.Repository, want); ok {
		return is.Tag, nil
	}
	t, err := l.rule.Scheme.Parse(tag)
	if err != nil {
		return "", nil //nolint:nilerr // an unrecognized tag has no long form
	}
	switch t.Form() {
	case tags.Long:
		return tag, nil
	case tags.Single: // it has no long form
		return "", nil
	}
	list, err := l.list(ctx, isNew)
	if err != nil {
		return "", ctx.Err() // an interruption must not be recorded as a missing tag
	}
	var first digest.Digest
	if isNew {
		first = want
	}
	return l.findTag(ctx, want, list, tags.Long, func(long tags.Tag) bool { return long.IsBuildOf(t) }, first)
}

// addNewer adds the candidates above the followed tag, and the newest release that the rules allow and that the source
// has for this platform. It resolves candidates one by one, the highest first, until Choose needs no more.
func (l *lookup) addNewer(ctx context.Context, o *Offer) error {
	from, err := l.rule.Scheme.Parse(o.Follow.Tag)
	if err != nil {
		if tags.MayPropose(o.Follow.Tag) { // the list shows whether a pattern orders it
			_, _ = l.list(ctx, l.rulesChanged[o.Repository])
		}
		return nil // nothing is newer than an unrecognized tag
	}
	list, err := l.list(ctx, l.rulesChanged[o.Repository])
	if l.rule.Updates > tags.Rebuild && !l.listing.IsListed(o.Repository) {
		l.noteList(o, err)
	}
	if err != nil {
		return nil //nolint:nilerr // noteList has recorded it, and the source reports it
	}
	if !l.listing.IsListed(o.Repository) {
		unread := l.lists.unread(o.Repository)
		o.LooksNewer = l.lists.memory(o.Repository).notUnderstood(o.Repository, list, unread, from, l.rule.Scheme)
	}
	o.Newer = candidates(list, from, l.rule)
	now, rule := l.asker.Now(), l.rule
	rule.Older = rule.Older || l.listing.IsListed(o.Repository) // its publisher has decided what is newer
	c := o.Choose(rule, now, l.refuses)
	for c.Unresolved >= 0 {
		if err := l.resolveCandidate(ctx, list, &o.Newer[c.Unresolved]); err != nil {
			return err
		}
		c = o.Choose(rule, now, l.refuses)
	}
	if o.Newest = c.Newest; o.Newest.Tag == o.Follow.Tag {
		l.refuseUnpublished(o, list, from)
	}
	return nil
}

// maxNotUnderstood limits the tags of an offer that are not understood: the nearest.
const maxNotUnderstood = 3

// noteList notes that newer tags are unknown. A failed list is a failure of the source; a list that the host does not
// serve is neither a failure nor an answer.
func (l *lookup) noteList(o *Offer, err error) {
	if o.NoList = l.lists.noList(l.question.Repository); o.NoList != nil {
		err = errors.New(o.NoList.Error)
	}
	if err == nil {
		err = l.lists.failed[l.question.Repository]
	}
	if err != nil {
		o.Notes = append(o.Notes, fmt.Sprintf("newer tags unknown, no tag list: %v", err))
	}
}

// refuses returns why a release is not offered, independent of the running one.
func (l *lookup) refuses(rel release.Release) (policy.Refusal, bool) {
	if no, refused := l.asker.Policy.RefusesListed(l.listing, rel); refused {
		return no, true
	}
	return l.asker.Record.Refuses(rel, l.rule)
}

// resolveCandidate finds the release of a candidate, or why no node can run it.
func (l *lookup) resolveCandidate(ctx context.Context, list []tags.Tag, c *record.Candidate) error {
	tag := c.Tag
	var rel release.Release
	d, err := l.resolve(ctx, tag, "")
	if err == nil {
		rel, err = l.release(ctx, tag, d)
	}
	switch {
	case errors.Is(err, release.ErrPlatform):
		c.Refusal = &policy.Refusal{Tag: tag, Rule: policy.RulePlatform, Reason: err.Error()}
		return nil
	case isUnusable(err), errors.Is(err, release.ErrUnlisted):
		c.Refusal = &policy.Refusal{Tag: tag, Rule: policy.RuleMissing, Reason: "listed, but not usable: " + err.Error()}
		return nil
	case err != nil:
		return err
	}
	c.Release, c.Confirmed = rel, true
	t, err := l.rule.Scheme.Parse(tag)
	if err != nil || !l.question.Convert || t.Form() != tags.Short {
		return nil //nolint:nilerr // a tag without an order is not converted
	}
	intermediate, err := l.findTag(ctx, rel.Digest, list, tags.Intermediate, sameApp(t), "")
	if intermediate != "" { // the next poll would convert the short tag to it
		c.Tag, c.Listed = intermediate, tag
	}
	return err
}

// refuseUnpublished adds a refusal for a long tag whose floating tag does not name it yet: OBS sets the tags one by
// one. If the build runs or failed here, it was published, and the floating tag was moved to an older build.
func (l *lookup) refuseUnpublished(o *Offer, list []tags.Tag, from tags.Tag) {
	now, err := l.rule.Scheme.Parse(o.Follow.Long)
	if err != nil || from.Form() == tags.Long || l.listing.IsListed(o.Repository) {
		return
	}
	repository := o.Repository
	isRunning := func(long string) bool {
		return slices.ContainsFunc(l.running[o.Question], func(d digest.Digest) bool {
			return l.asker.Record.Releases[release.Key(repository, d)].Long == long
		})
	}
	for _, t := range ofForm(list, tags.Long) {
		wasPublished := isRunning(t.String()) || l.asker.Record.HasFailed(repository, t.String())
		if t.IsBuildOf(from) && tags.Compare(t, now) > 0 && !wasPublished {
			o.refuse(t.String(), policy.RulePublishing, "%s does not name it (yet)", o.Follow.Tag)
			return
		}
	}
}

// isUnusable reports whether the source has answered that it has no image for a tag or a digest, or refuses it.
func isUnusable(err error) bool {
	se, is := errors.AsType[*release.SourceError](err)
	return errors.Is(err, release.ErrNotFound) || errors.Is(err, release.ErrNotImage) || is && se.Refused
}

// describeRunning describes each running digest once, to compare offers with it. A digest
// that the source does not have is stored without a build.
func (l *lookup) describeRunning(ctx context.Context) error {
	repository := l.question.Repository
	for _, running := range l.running[l.question] {
		key := release.Key(repository, running)
		if _, known := l.asker.Record.Releases[key]; known || running == "" {
			continue
		}
		build, err := l.describe(ctx, repository, running)
		if se, is := errors.AsType[*release.SourceError](err); is && se.Refused {
			continue // for now: a policy may change
		}
		if err != nil && !errors.Is(err, release.ErrNotFound) && !errors.Is(err, release.ErrPlatform) {
			return err
		}
		l.asker.Record.Releases.Set(key, release.Release{Repository: repository, Digest: running, Build: build})
	}
	return nil
}
