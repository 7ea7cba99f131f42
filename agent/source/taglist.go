// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

// keptTags bounds the tags that the record keeps of one repository: the highest
// of each form, and for each followed tag the highest that may come next, and its
// own revisions and builds, so that many new ones do not hide the older line that a
// policy stays on. It makes two kilobytes of a list, however long.
const keptTags = 16

// list gives a repository's SUSE tags, newest first. A list is asked for when
// the kept one is too old, when a person asks, or when a digest is new and its
// long tag must be found (fresh); at most once a round.
func (i *Round) list(ctx context.Context, repository string, fresh bool) ([]tags.Tag, error) {
	a := i.asker
	kept, ok := a.Record.Lists[repository]
	age := a.Now().Sub(kept.At) // below zero: the clock was wrong then
	due := !ok || fresh || i.poll == PollAll || age < 0 || age >= a.Policy.ListEvery
	if due && !i.listed[repository] {
		i.listed[repository] = true
		end := a.Progress.Heartbeat()
		names, err := a.Source.Tags(ctx, repository)
		end()
		switch {
		case err != nil && ctx.Err() != nil:
			delete(i.listed, repository)
			return nil, err
		case err == nil:
			i.full[repository], i.counts[repository] = a.sortOut(repository, names)
		case ok && kept.Refused == "":
			a.Log.Warn("tag list is old", "repository", repository, "since", kept.At, "err", err)
		case servesNone(err):
			a.Record.Lists.Set(repository, record.TagList{At: a.Now(), Refused: err.Error()})
			return nil, err
		default:
			return nil, err
		}
	}
	if full, ok := i.full[repository]; ok {
		return full, nil
	}
	kept, ok = a.Record.Lists[repository]
	if !ok || kept.Refused != "" {
		return nil, fmt.Errorf("%s: no tag list: %s", repository, kept.Refused)
	}
	list, _, _ := parseAll(kept.Tags, a.Policy.RuleFor(repository).Dialect)
	return list, nil
}

// servesNone tells a host that has no tag lists, or none for us, from one that
// does not answer now.
func servesNone(err error) bool {
	if errors.Is(err, release.ErrNotFound) {
		return true
	}
	se, ok := errors.AsType[*release.SourceError](err)
	return ok && (se.Status == 401 || se.Status == 403 || se.Status == 405)
}

// sortOut parses a list. The record keeps the one of before until the end of the round
// (keepTags): a poll that is interrupted may never come to it.
func (a *Asker) sortOut(repository string, names []string) ([]tags.Tag, record.TagList) {
	list, foreign, malformed := parseAll(names, a.Policy.RuleFor(repository).Dialect)
	if malformed > 0 {
		a.Log.Info("malformed tags in the list", "repository", repository, "count", malformed)
	}
	return list, record.TagList{At: a.Now(), Foreign: foreign, Malformed: malformed}
}

// shorten drops what nobody needs any more of the list of a repository, whose
// questions have their first answers: a hundred thousand tags of each repository
// until the end of the round were hundreds of megabytes.
func (i *Round) shorten(qs []release.Question) {
	repository := qs[0].Repository
	list, ok := i.full[repository]
	if !ok {
		return
	}
	var follows []followed
	for _, q := range qs {
		rule := i.asker.Policy.RuleForQuestion(q)
		last := i.asker.Record.Offers[q.String()] // where there is no answer in this round
		for _, tag := range []string{i.results[q].offer.Follow.Tag, last.Follow.Tag} {
			if t, err := rule.Dialect.Parse(tag); err == nil {
				follows = append(follows, followed{t, rule})
			}
		}
	}
	i.full[repository] = trimTags(list, follows)
}

// keepTags records what later polls may need of the lists of this round.
func (i *Round) keepTags(offers map[release.Question]Offer) {
	follows := map[string][]followed{}
	for q, o := range offers {
		rule := i.asker.Policy.RuleForQuestion(q)
		if t, err := rule.Dialect.Parse(o.Follow.Tag); err == nil {
			follows[q.Repository] = append(follows[q.Repository], followed{t, rule})
		}
	}
	for repository, list := range i.full {
		kept := i.counts[repository]
		for _, t := range trimTags(list, follows[repository]) {
			kept.Tags = append(kept.Tags, t.String())
		}
		i.asker.Record.Lists.Set(repository, kept)
	}
}

// followed is a tag that is followed, and the rule that what is newer goes by.
type followed struct {
	tags.Tag
	rule policy.Rule
}

// trimTags chooses from a list, newest first, what the answers of later
// polls come from: the highest of each form, what a followed tag may go to, and
// the builds and revisions of it.
func trimTags(list []tags.Tag, follows []followed) []tags.Tag {
	keep := map[string]bool{}
	choose := func(fits func(tags.Tag) bool) {
		left := keptTags
		for _, t := range list {
			if left == 0 {
				return
			}
			if fits(t) {
				keep[t.String()] = true
				left--
			}
		}
	}
	for _, form := range []tags.Form{tags.Short, tags.Intermediate, tags.Long} {
		choose(func(t tags.Tag) bool { return t.Form() == form })
	}
	for _, from := range follows {
		choose(func(t tags.Tag) bool {
			change := tags.ChangeBetween(from.Tag, t)
			_, refused := from.rule.RefusesTag(t, change)
			return tags.SamePrecision(from.Tag, t) && change > tags.Same && !refused
		})
		for _, form := range []tags.Form{tags.Intermediate, tags.Long} {
			choose(func(t tags.Tag) bool { return t.Form() == form && isBuildOf(t, from.Tag) })
		}
	}
	out := make([]tags.Tag, 0, len(keep))
	for _, t := range list {
		if keep[t.String()] {
			out = append(out, t)
		}
	}
	return out
}

// parseAll parses what is a SUSE tag, newest first, and counts the rest.
func parseAll(names []string, d tags.Dialect) (list []tags.Tag, foreign, malformed int) {
	for _, n := range names {
		t, err := d.Parse(n)
		switch {
		case err == nil:
			list = append(list, t)
		case tags.Classify(n) == tags.ClassMalformed:
			malformed++
		default:
			foreign++
		}
	}
	slices.SortFunc(list, func(x, y tags.Tag) int { return tags.Compare(y, x) })
	return list, foreign, malformed
}

// ofForm keeps the tags of one form, in their order.
func ofForm(list []tags.Tag, f tags.Form) []tags.Tag {
	return slices.DeleteFunc(slices.Clone(list), func(t tags.Tag) bool { return t.Form() != f })
}

// ofApp is true of the tags of one application version.
func ofApp(short tags.Tag) func(tags.Tag) bool {
	return func(t tags.Tag) bool { return t.App() == short.App() }
}

// isBuildOf reports whether the long tag is a build of the floating one.
func isBuildOf(long, floating tags.Tag) bool {
	return long.App() == floating.App() && (floating.Form() == tags.Short || long.Rev() == floating.Rev())
}
