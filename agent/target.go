// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/tags"
)

// target chooses what an image is to run: the newest release that no rule
// refuses, or what runs. It is judged here, by what runs now and the rules of
// now, and not when the source was asked.
func (d *decider) target(w Want, i *ImagePlan, rule Rule, running digest.Digest) {
	o := i.Offer
	i.Target = o.Newest
	if running == "" || w.OnDisk.Repository != o.Repository || IsPlaceholder(w.OnDisk.Tag) {
		if no, refused := d.refuses(i.Target, rule); refused {
			d.fallBack(i, rule, no)
		}
		return
	}
	was := d.rec.Releases[releaseKey(o.Repository, running)]
	was.Repository, was.Tag, was.Digest = o.Repository, w.OnDisk.Tag, running
	for _, rel := range []Release{o.Newest, o.Follow} {
		no, refused := d.against(w, i, was, rel, rule)
		if !refused {
			i.Target = rel
			return
		}
		i.refuse(no)
	}
	i.Target = was
}

// fallBack is for a pod of which nothing is known to run: it starts with what
// is followed, or, if that is refused, too, it waits.
func (d *decider) fallBack(i *ImagePlan, rule Rule, no Refusal) {
	i.refuse(no)
	i.Target = i.Offer.Follow
	if no, refused := d.refuses(i.Target, rule); refused {
		i.refuse(no)
		i.Offer.Follow, i.Offer.Newest, i.Target = Release{}, Release{}, Release{}
		i.Offer.Err = errors.New(no.String())
	}
}

// against tells by which rule rel must not take the place of what runs. What
// disagrees without being a reason is noted.
func (d *decider) against(w Want, i *ImagePlan, was, rel Release, rule Rule) (Refusal, bool) {
	if rel.Digest == was.Digest || rel.Config != "" && rel.Config == was.Config {
		return Refusal{}, false
	}
	if no, refused := d.refuses(rel, rule); refused {
		return no, true
	}
	if no, refused := stranger(was, rel); refused {
		return no, true
	}
	reason := ""
	switch {
	case rel.Tag == w.OnDisk.Tag, areTwins(was.Long, rel.Tag, rule),
		rel.Tag == i.Offer.Follow.Tag && areTwins(w.OnDisk.Tag, rel.Tag, rule):
		older, warning := backwards(was, rel, rule.Dialect)
		if warning != "" {
			i.note(warning)
		}
		if older {
			reason = rel.Tag + " went back: what runs is newer"
		}
	case rule.Follow == "" && isLower(rel.Tag, was.Long, rule.Dialect):
		reason = was.Long + " runs, and is newer" // as after a rollback to more than is followed
	}
	return Refusal{rel.Name(), RuleOlder, reason}, reason != "" && !rule.Older
}

// areTwins reports whether two tags stand for the same releases, as a short tag
// and its intermediate one do. What the configuration follows stands for itself.
func areTwins(a, b string, rule Rule) bool {
	x, errX := rule.Dialect.Parse(a)
	y, errY := rule.Dialect.Parse(b)
	return rule.Follow == "" && errX == nil && errY == nil && tags.ChangeBetween(x, y) == tags.Same
}

// refuse and note never write into what the offer shares with the record.
func (i *ImagePlan) refuse(no Refusal) {
	if !slices.Contains(i.Offer.Refused, no) {
		i.Offer.Refused = append([]Refusal{no}, i.Offer.Refused...)
	}
}

func (i *ImagePlan) note(text string) {
	if !slices.Contains(i.Offer.Notes, text) {
		i.Offer.Notes = append(slices.Clone(i.Offer.Notes), text)
	}
}

// String is a refusal in one line.
func (r Refusal) String() string { return fmt.Sprintf("%s refused by %s: %s", r.Tag, r.Rule, r.Reason) }
