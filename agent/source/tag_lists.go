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

// keptTags bounds the tags of one form that the record keeps of a repository, and those
// that a followed tag may move to. It makes two kilobytes of a list, however long.
const keptTags = 16

// tagLists are the tag lists of a round, by repository.
type tagLists struct {
	asker *Asker
	all   bool                      // all are due
	asked map[string]bool           // at most one request a round
	tags  map[string][]tags.Tag     // newest first
	kept  map[string]record.TagList // for the record, without tags
}

func newTagLists(a *Asker, poll Poll) *tagLists {
	return &tagLists{
		asker: a, all: poll == PollAll,
		asked: map[string]bool{}, tags: map[string][]tags.Tag{}, kept: map[string]record.TagList{},
	}
}

// list returns the SUSE tags of a repository, newest first. It lists them if the recorded
// list is too old, a person asks, or force is set.
func (l *tagLists) list(ctx context.Context, repository string, from Source, force bool) ([]tags.Tag, error) {
	a := l.asker
	kept, ok := a.Record.Lists[repository]
	age := a.Now().Sub(kept.At) // negative: the clock was wrong then
	_, isListed := from.(listedSource)
	due := !ok || force || l.all || isListed || age < 0 || age >= a.Policy.ListEvery
	if due && !l.asked[repository] {
		if err := l.fetch(ctx, repository, from); err != nil {
			return nil, err
		}
	}
	if list, ok := l.tags[repository]; ok {
		return list, nil
	}
	if !ok || kept.Error != "" {
		return nil, fmt.Errorf("%s: no tag list: %s", repository, kept.Error)
	}
	list, _, _ := parseAll(kept.Tags, a.Policy.RuleFor(repository).Dialect)
	return list, nil
}

// fetch lists the tags of a repository. If the source fails, an older list serves.
func (l *tagLists) fetch(ctx context.Context, repository string, from Source) error {
	a := l.asker
	end := a.Progress.Heartbeat()
	names, err := from.Tags(ctx, repository)
	end()
	if err != nil && ctx.Err() != nil {
		return err
	}
	l.asked[repository] = true
	kept, ok := a.Record.Lists[repository]
	switch {
	case err == nil:
		list, foreign, malformed := parseAll(names, a.Policy.RuleFor(repository).Dialect)
		if malformed > 0 {
			a.Log.Info("malformed tags in the list", "repository", repository, "count", malformed)
		}
		l.tags[repository] = list
		if _, isListed := from.(listedSource); !isListed {
			l.kept[repository] = record.TagList{At: a.Now(), Foreign: foreign, Malformed: malformed}
		}
	case ok && kept.Error == "":
		a.Log.Warn("tag list is old", "repository", repository, "since", kept.At, "err", err)
		return nil
	case servesNoLists(err):
		a.Record.Lists.Set(repository, record.TagList{At: a.Now(), Error: err.Error()})
	}
	return err
}

// servesNoLists reports whether a host has no tag lists, or none for us.
func servesNoLists(err error) bool {
	se, ok := errors.AsType[*release.SourceError](err)
	return errors.Is(err, release.ErrNotFound) || ok && (se.Status == 401 || se.Status == 403 || se.Status == 405)
}

// trim drops what the rest of the round does not need: the lists of all repositories may
// have a hundred thousand tags each.
func (l *tagLists) trim(repository string, follows []followed) {
	if list, ok := l.tags[repository]; ok {
		l.tags[repository] = trimTags(list, follows)
	}
}

// save records what later polls need of the lists.
func (l *tagLists) save(follows map[string][]followed) {
	for repository, list := range l.tags {
		kept, is := l.kept[repository]
		if !is {
			continue
		}
		for _, t := range trimTags(list, follows[repository]) {
			kept.Tags = append(kept.Tags, t.String())
		}
		l.asker.Record.Lists.Set(repository, kept)
	}
}

// followed is a followed tag, and the rule for newer ones.
type followed struct {
	tags.Tag
	rule policy.Rule
}

// trimTags selects from a list, newest first: the highest tags of each form, and for each
// followed tag those that it may move to, and its own builds and revisions. So many new
// tags do not hide the older line that a policy stays on.
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

// parseAll parses the SUSE tags, sorts them newest first, and counts the others.
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

// ofForm returns the tags of one form, in their order.
func ofForm(list []tags.Tag, f tags.Form) []tags.Tag {
	return slices.DeleteFunc(slices.Clone(list), func(t tags.Tag) bool { return t.Form() != f })
}

// sameApp returns a filter for the tags of one application version.
func sameApp(short tags.Tag) func(tags.Tag) bool {
	return func(t tags.Tag) bool { return t.App() == short.App() }
}

// isBuildOf reports whether the long tag is a build of the floating one.
func isBuildOf(long, floating tags.Tag) bool {
	return long.App() == floating.App() && (floating.Form() == tags.Short || long.Rev() == floating.Rev())
}
