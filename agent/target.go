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
	is := Release{}
	against := func(rel Release) (Refusal, bool) { return d.rec.Refuses(rel, rule) }
	if running != "" && w.OnDisk.Repository == o.Repository && !IsPlaceholder(w.OnDisk.Tag) {
		is = d.rec.Releases[releaseKey(o.Repository, running)]
		is.Repository, is.Tag, is.Digest = o.Repository, w.OnDisk.Tag, running
		against = func(rel Release) (Refusal, bool) { return d.against(w, i, is, rel, rule) }
	}
	c := o.choose(rule, d.now, against)
	if i.Target = c.newest; c.newest.Tag == o.Follow.Tag {
		if no, refused := against(o.Follow); refused {
			c.refused, i.Target = append(c.refused, no), is
			if o.Follow.Digest == is.Digest {
				c.runs = no
			}
		}
	}
	d.explain(i, c, rule)
	if i.Target.Digest == "" {
		// Nothing is known to run, and what it would start with is refused: it waits.
		no := c.refused[len(c.refused)-1]
		i.Offer.Follow, i.Offer.Newest, i.Target = Release{}, Release{}, Release{}
		i.Offer.Err = errors.New(no.String())
	}
}

// explain says what the choice passed over. It never writes into what the offer
// shares with the record.
func (d *decider) explain(i *ImagePlan, c choice, rule Rule) {
	var newer []Refusal
	i.RebuildsOnly = rebuildsOnly(i.Offer.Follow.Tag, rule)
	facts := i.Offer.Refused
	i.Offer.Newest, i.Offer.Refused = c.newest, nil
	for _, no := range append(c.refused, facts...) {
		if t, err := rule.Dialect.Parse(no.Tag); err == nil && no.Rule == RulePublishing {
			if by, refused := rule.refusesTag(t, tags.Rebuild); refused {
				no = by // it is not waited for
			}
		}
		if no != c.runs {
			newer = append(newer, no)
		}
		no.Holds = no.holds(d.now)
		if len(i.Offer.Refused) < maxRefused && !slices.Contains(i.Offer.Refused, no) {
			i.Offer.Refused = append(i.Offer.Refused, no)
		}
	}
	i.NotAllowed = notAllowed(newer)
	for _, text := range c.notes {
		i.note(text)
	}
	if c.unasked >= 0 {
		i.note(i.Offer.Newer[c.unasked].listed() + " may be newer, and is asked for at the next check")
	}
}

// against tells by which rule rel must not take the place of what runs. What
// disagrees without being a reason is noted.
func (d *decider) against(w Want, i *ImagePlan, was, rel Release, rule Rule) (Refusal, bool) {
	same := rel.Digest == was.Digest || rel.Config != "" && rel.Config == was.Config
	if same && rel.Tag == w.OnDisk.Tag {
		return Refusal{}, false
	}
	if no, refused := d.rec.Refuses(rel, rule); refused || same {
		return no, refused
	}
	if no, refused := stranger(was, rel); refused {
		return no, true
	}
	change := risen(was, rel, rule)
	if no, refused := rule.refusesUpgrade(change, rel.Name(), rel.Tag); refused {
		return no, true
	}
	if change > rule.Updates && bySource(w, rule) {
		return rule.tooMuch(rel.Name(), change), true
	}
	reason := ""
	switch {
	case rel.Tag == w.OnDisk.Tag, areTwins(was.Long, rel.Tag, rule),
		rel.Tag == i.Offer.Follow.Tag && areTwins(w.OnDisk.Tag, rel.Tag, rule):
		older, warning := backwards(was, rel, rule.Dialect, d.now)
		if warning != "" {
			i.note(warning)
		}
		if older {
			reason = rel.Tag + " went back: what runs is newer"
		}
	case rule.Follow == "" && isLower(rel.Tag, was.Long, rule.Dialect):
		reason = was.Long + " runs, and is newer" // as after a rollback to more than is followed
	}
	return Refusal{Tag: rel.Name(), Rule: RuleOlder, Reason: reason, Key: "older: true"}, reason != "" && !rule.Older
}

// bySource reports that the pod manifest already has what is asked for: what
// differs now is the source's doing, and no word of a template or a person.
func bySource(w Want, rule Rule) bool {
	return w.Ask.Tag == w.OnDisk.Tag || areTwins(w.Ask.Tag, w.OnDisk.Tag, rule)
}

// risen is what a release changes against what runs, as far as names tell it: a
// rebuild at least.
func risen(was, rel Release, rule Rule) tags.Change {
	from, errFrom := rule.Dialect.Parse(was.Name())
	to, errTo := rule.Dialect.Parse(rel.Name())
	if errFrom != nil || errTo != nil {
		return tags.Rebuild
	}
	return max(tags.ChangeBetween(from, to), tags.Rebuild)
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
