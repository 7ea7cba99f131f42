// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"

	"github.com/kubic-project/image-update-agent/tags"
)

// list gives a repository's SUSE tags, newest first. A list is asked for when
// the kept one is too old, when a person asks, or when a digest is new and its
// long tag must be found (fresh); at most once a round.
func (i *inquiry) list(ctx context.Context, repository string, fresh bool) ([]tags.Tag, error) {
	a := i.agent
	kept, ok := a.record.Lists[repository]
	due := !ok || fresh || i.poll == PollAll || a.Now().Sub(kept.At) >= a.Policy.ListEvery
	if due && !i.listed[repository] {
		i.listed[repository] = true
		names, err := a.Source.Tags(ctx, repository)
		if err != nil && !ok {
			return nil, err
		}
		if err != nil {
			a.Log.Warn("tag list is old", "cycle", a.cycle, "repository", repository, "since", kept.At, "err", err)
		} else {
			kept = a.keepList(repository, names)
		}
	}
	list, _, _ := parseAll(kept.Tags, a.Policy.rule(repository).Dialect)
	return list, nil
}

// keepList sorts out a list and records its newest tags.
func (a *Agent) keepList(repository string, names []string) TagList {
	list, foreign, malformed := parseAll(names, a.Policy.rule(repository).Dialect)
	if malformed > 0 {
		a.Log.Info("malformed tags in the list", "cycle", a.cycle, "repository", repository, "count", malformed)
	}
	kept := TagList{At: a.Now(), Foreign: foreign, Malformed: malformed}
	for _, t := range list[:min(len(list), keptTags)] {
		kept.Tags = append(kept.Tags, t.String())
	}
	if a.record.Lists == nil {
		a.record.Lists = map[string]TagList{}
	}
	a.record.Lists[repository] = kept
	return kept
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
