// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kubic-project/image-update-agent/tags"
)

// keptTags bounds the tags that the record keeps of one repository: the newest
// of each form, so that many new ones do not hide the older line that a policy
// stays on.
const keptTags = 512

// list gives a repository's SUSE tags, newest first. A list is asked for when
// the kept one is too old, when a person asks, or when a digest is new and its
// long tag must be found (fresh); at most once a round.
func (i *inquiry) list(ctx context.Context, repository string, fresh bool) ([]tags.Tag, error) {
	a := i.agent
	kept, ok := a.record.Lists[repository]
	age := a.Now().Sub(kept.At) // below zero: the clock was wrong then
	due := !ok || fresh || i.poll == PollAll || age < 0 || age >= a.Policy.ListEvery
	if due && !i.listed[repository] {
		i.listed[repository] = true
		names, err := a.Source.Tags(ctx, repository)
		switch {
		case err == nil:
			i.full[repository] = a.keepList(repository, names)
		case ok && kept.Refused == "":
			a.Log.Warn("tag list is old", "cycle", a.cycle, "repository", repository, "since", kept.At, "err", err)
		case servesNone(err):
			a.record.keepList(repository, TagList{At: a.Now(), Refused: err.Error()})
			return nil, err
		default:
			return nil, err
		}
	}
	if full, ok := i.full[repository]; ok {
		return full, nil
	}
	kept, ok = a.record.Lists[repository]
	if !ok || kept.Refused != "" {
		return nil, fmt.Errorf("%s: no tag list: %s", repository, kept.Refused)
	}
	list, _, _ := parseAll(kept.Tags, a.Policy.rule(repository).Dialect)
	return list, nil
}

// servesNone tells a host that has no tag lists, or none for us, from one that
// does not answer now.
func servesNone(err error) bool {
	if errors.Is(err, ErrNotFound) {
		return true
	}
	se, ok := errors.AsType[*SourceError](err)
	return ok && (se.Status == 401 || se.Status == 403 || se.Status == 405)
}

// keepList sorts out a list and records its newest tags.
func (a *Agent) keepList(repository string, names []string) []tags.Tag {
	list, foreign, malformed := parseAll(names, a.Policy.rule(repository).Dialect)
	if malformed > 0 {
		a.Log.Info("malformed tags in the list", "cycle", a.cycle, "repository", repository, "count", malformed)
	}
	kept := TagList{At: a.Now(), Foreign: foreign, Malformed: malformed}
	count := map[tags.Form]int{}
	for _, t := range list {
		if count[t.Form()]++; count[t.Form()] <= keptTags {
			kept.Tags = append(kept.Tags, t.String())
		}
	}
	a.record.keepList(repository, kept)
	return list
}

func (r *Record) keepList(repository string, l TagList) {
	if r.Lists == nil {
		r.Lists = map[string]TagList{}
	}
	r.Lists[repository] = l
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
