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
	d, err := l.resolve(ctx, tag)
	if err == nil {
		rel, err = l.existing(ctx, tag, d)
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
	intermediate, err := l.findTag(ctx, rel.Digest, list, tags.Intermediate, sameApp(t), l.resolve)
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
