// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kubic-project/image-update-agent/tags"
)

// newest finds the newest release of the followed form that policy allows and
// that is really there, for this platform.
func (i *inquiry) newest(ctx context.Context, o *Offer) error {
	q, rule := o.Question, i.agent.Policy.rule(o.Repository)
	from, err := rule.Dialect.Parse(o.Follow.Tag)
	if err != nil || rule.Updates < tags.Rebuild || (rule.Updates == tags.Rebuild && from.Form() != tags.Long) {
		return nil //nolint:nilerr // a foreign tag has no newer ones
	}
	list, err := i.list(ctx, q.Repository, false)
	if err != nil {
		i.noList(q, err)
		o.Notes = append(o.Notes, fmt.Sprintf("newer tags unknown: no tag list: %v", err))
		return nil
	}
	if top, ok := tags.Newest(list, from, tags.Major); ok {
		if c := tags.ChangeBetween(from, top); c > rule.Updates {
			o.Notes = append(o.Notes, fmt.Sprintf("%s not offered: %s is more than updates: %s", top, c, rule.Updates))
		}
	}
	list = slices.Clone(list)
	for range maxCandidates {
		top, ok := tags.Newest(list, from, rule.Updates)
		if !ok || top.Wire() == o.Follow.Tag {
			break
		}
		r, err := i.named(ctx, q, top.Wire())
		switch {
		case err == nil:
			o.Newest = r
			return nil
		case !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrPlatform):
			return err
		}
		o.Notes = append(o.Notes, fmt.Sprintf("%s not offered: listed, but: %v", top, err))
		list = slices.DeleteFunc(list, func(t tags.Tag) bool { return t == top })
	}
	return nil
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
