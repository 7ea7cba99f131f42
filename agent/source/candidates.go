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

// newest finds the newest release of the followed form that the rules allow and
// that is really there, for this platform: it asks for the highest candidate that
// they allow so far, until choose needs to know nothing more.
func (i *Round) newest(ctx context.Context, o *Offer) error {
	rule := i.asker.Policy.RuleForQuestion(o.Question)
	from, err := rule.Dialect.Parse(o.Follow.Tag)
	if err != nil {
		return nil //nolint:nilerr // a foreign tag has no newer ones
	}
	list, err := i.list(ctx, o.Repository, i.changed[o.Repository])
	if err != nil {
		i.noList(o.Question, err)
		if rule.Updates > tags.Rebuild {
			o.Notes = append(o.Notes, fmt.Sprintf("newer tags unknown: no tag list: %v", err))
		}
		return nil
	}
	o.Newer = candidates(list, from, rule)
	against := func(rel release.Release) (policy.Refusal, bool) { return i.asker.Record.Refuses(rel, rule) }
	now := i.asker.Now()
	c := o.Choose(rule, now, against)
	for c.Unasked >= 0 {
		if err := i.candidate(ctx, o, list, &o.Newer[c.Unasked]); err != nil {
			return err
		}
		c = o.Choose(rule, now, against)
	}
	if o.Newest = c.Newest; o.Newest.Tag == o.Follow.Tag {
		i.publishing(o, list, from)
	}
	return nil
}

// candidate learns what a candidate names.
func (i *Round) candidate(ctx context.Context, o *Offer, list []tags.Tag, c *record.Candidate) error {
	tag := c.Tag
	rel, err := i.named(ctx, o.Question, tag)
	switch {
	case errors.Is(err, release.ErrPlatform):
		c.No = &policy.Refusal{Tag: tag, Rule: policy.RulePlatform, Reason: err.Error()}
		return nil
	case errors.Is(err, release.ErrNotFound):
		c.No = &policy.Refusal{Tag: tag, Rule: policy.RuleMissing, Reason: "listed, but: " + err.Error()}
		return nil
	case err != nil:
		return err
	}
	c.Release, c.Settled = rel, true
	if t, err := i.asker.Policy.RuleFor(o.Repository).Dialect.Parse(tag); err == nil && o.Convert &&
		t.Form() == tags.Short {
		// Or it would be converted right after.
		twin, err := i.naming(ctx, rel.Digest, o.Repository, list, tags.Intermediate, ofApp(t))
		if err != nil {
			return err
		}
		if twin != "" {
			c.Tag, c.Listed = twin, tag
		}
	}
	return nil
}

// publishing says where a build is on its way: OBS sets the tags one by one, so
// a long tag may be there before its floating tag names it. One that runs, or
// did not come up, has been there: its floating tag went back.
func (i *Round) publishing(o *Offer, list []tags.Tag, from tags.Tag) {
	if from.Form() == tags.Long {
		return
	}
	now, err := i.asker.Policy.RuleFor(o.Repository).Dialect.Parse(o.Follow.Long)
	if err != nil {
		return
	}
	for _, l := range ofForm(list, tags.Long) {
		known := i.isRunning(o.Question, l.Wire()) || i.asker.Record.HasFailed(o.Repository, l.Wire())
		if isBuildOf(l, from) && tags.Compare(l, now) > 0 && !known {
			o.refuse(l.Wire(), policy.RulePublishing, "%s does not name it (yet)", o.Follow.Tag)
			return
		}
	}
}

func (i *Round) isRunning(q release.Question, long string) bool {
	return slices.ContainsFunc(i.runs[q], func(d digest.Digest) bool {
		return i.asker.Record.Releases[release.Key(q.Repository, d)].Long == long
	})
}

// named is the release that a tag names now.
func (i *Round) named(ctx context.Context, q release.Question, tag string) (release.Release, error) {
	d, err := i.head(ctx, q.Repository, tag)
	if err != nil {
		return release.Release{}, err
	}
	return i.release(ctx, q, tag, d)
}

// noList says that a host serves tags but no list of them, as a plain mirror
// may: what is followed can still be offered, by digest.
func (i *Round) noList(q release.Question, err error) {
	i.asker.Log.Debug("no tag list", "repository", q.Repository, "err", err)
}

// describeRunning learns, once, what runs: what is offered is compared with that. An
// image that the source has no more tells nothing, and is not asked for again.
func (i *Round) describeRunning(ctx context.Context, q release.Question) error {
	for _, running := range i.runs[q] {
		_, known := i.asker.Record.Releases[release.Key(q.Repository, running)]
		if known || running == "" {
			continue
		}
		build, err := i.asker.describe(ctx, q.Repository, running)
		if err != nil && !errors.Is(err, release.ErrNotFound) && !errors.Is(err, release.ErrPlatform) {
			return err
		}
		i.asker.Record.Releases.Set(
			release.Key(q.Repository, running), release.Release{Repository: q.Repository, Digest: running, Build: build},
		)
	}
	return nil
}
