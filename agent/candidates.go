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

// newest finds the newest release of the followed form that policy allows and
// that is really there, for this platform. What it passes over it explains.
func (i *inquiry) newest(ctx context.Context, o *Offer) error {
	rule := i.agent.Policy.rule(o.Repository)
	from, err := rule.Dialect.Parse(o.Follow.Tag)
	if err != nil || rule.Updates < tags.Rebuild || (rule.Updates == tags.Rebuild && from.Form() != tags.Long) {
		return nil //nolint:nilerr // a foreign tag has no newer ones
	}
	list, err := i.list(ctx, o.Repository, false)
	if err != nil {
		i.noList(o.Question, err)
		o.Notes = append(o.Notes, fmt.Sprintf("newer tags unknown: no tag list: %v", err))
		return nil
	}
	tried := 0
	for _, t := range ofForm(list, from.Form()) { // the highest first
		change := tags.ChangeBetween(from, t)
		if change <= tags.Same {
			continue
		}
		if r, refused := rule.refusesTag(t, change); refused {
			o.refuse(r.Tag, r.Rule, "%s", r.Reason)
			continue
		}
		if tried++; tried > maxCandidates {
			break
		}
		found, err := i.candidate(ctx, o, list, t, rule)
		if err != nil || found {
			return err
		}
	}
	i.publishing(o, list, from)
	return nil
}

// candidate looks at one tag; found: it is the newest.
func (i *inquiry) candidate(
	ctx context.Context, o *Offer, list []tags.Tag, t tags.Tag, rule Rule,
) (found bool, err error) {
	tag := t.Wire()
	r, err := i.named(ctx, o.Question, tag)
	switch {
	case errors.Is(err, ErrPlatform):
		o.refuse(tag, RulePlatform, "%v", err)
		return false, nil
	case errors.Is(err, ErrNotFound):
		o.refuse(tag, RuleMissing, "listed, but: %v", err)
		return false, nil
	case err != nil:
		return false, err
	}
	if no, refused := rule.refuses(r); refused {
		o.refuse(r.Name(), no.Rule, "%s", no.Reason)
		return false, nil
	}
	if no, refused := stranger(o.Follow, r); refused {
		o.refuse(r.Name(), no.Rule, "%s", no.Reason)
		return false, nil
	}
	if isEarlier(r, o.Follow) {
		o.Notes = append(o.Notes, fmt.Sprintf("%s is newer by name than %s, but was created earlier (%s, %s)",
			r.Name(), o.Follow.Name(), day(r.Created), day(o.Follow.Created)))
	}
	if o.Convert && t.Form() == tags.Short { // or it would be converted right after
		twin, err := i.naming(ctx, r.Digest, o.Repository, list, tags.Intermediate, ofApp(t))
		if err != nil {
			return false, err
		}
		if twin != "" {
			r.Tag = twin
		}
	}
	o.Newest = r
	return true, nil
}

// publishing says where a build is on its way: OBS sets the tags one by one, so
// a long tag may be there before its floating tag names it. One that runs has
// been there: its floating tag went back.
func (i *inquiry) publishing(o *Offer, list []tags.Tag, from tags.Tag) {
	if from.Form() == tags.Long {
		return
	}
	now, err := i.agent.Policy.rule(o.Repository).Dialect.Parse(o.Follow.Long)
	if err != nil {
		return
	}
	for _, l := range ofForm(list, tags.Long) {
		if sameFloor(l, from) && tags.Compare(l, now) > 0 && !i.isRunning(o.Question, l.Wire()) {
			o.refuse(l.Wire(), RulePublishing, "%s does not name it (yet)", o.Follow.Tag)
			return
		}
	}
}

func (i *inquiry) isRunning(q Question, long string) bool {
	return slices.ContainsFunc(i.runs[q], func(d digest.Digest) bool {
		return i.agent.record.Releases[releaseKey(q.Repository, d)].Long == long
	})
}

// named is the release that a tag names now.
func (i *inquiry) named(ctx context.Context, q Question, tag string) (Release, error) {
	d, err := i.head(ctx, q.Repository, tag)
	if err != nil {
		return Release{}, err
	}
	return i.release(ctx, q, tag, d)
}

// noList says that a host serves tags but no list of them, as a plain mirror
// may: what is followed can still be offered, by digest.
func (i *inquiry) noList(q Question, err error) {
	i.agent.Log.Debug("no tag list", "cycle", i.agent.cycle, "repository", q.Repository, "err", err)
}

// anchor learns, once, what runs: what is offered is compared with that. An
// image that the source has no more tells nothing, and is not asked for again.
func (i *inquiry) anchor(ctx context.Context, q Question) error {
	for _, running := range i.runs[q] {
		_, known := i.agent.record.Releases[releaseKey(q.Repository, running)]
		if known || running == "" {
			continue
		}
		build, err := i.agent.describe(ctx, q.Repository, running)
		if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrPlatform) {
			return err
		}
		i.agent.record.learn(Release{Repository: q.Repository, Digest: running, Build: build})
	}
	return nil
}

// learn keeps what a digest is.
func (r *Record) learn(rel Release) {
	if r.Releases == nil {
		r.Releases = map[string]Release{}
	}
	r.Releases[releaseKey(rel.Repository, rel.Digest)] = rel
}
