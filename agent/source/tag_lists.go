// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

// keptTags limits the tags of one form that the record keeps of a repository, and those that a followed tag may move
// to. It reduces any list to two kilobytes.
const keptTags = 16

// tagLists are the tag lists of a round, by repository.
type tagLists struct {
	asker *Asker
	all   bool                      // all are due
	asked map[string]bool           // at most one request per round
	tags  map[string][]tags.Tag     // newest first
	kept  map[string]record.TagList // for the record, without tags
	// failed is why the list of a repository failed. An older one may be used.
	failed map[string]error
}

func newTagLists(a *Asker, poll Poll) *tagLists {
	return &tagLists{
		asker: a, all: poll == PollAll,
		asked: map[string]bool{}, tags: map[string][]tags.Tag{}, kept: map[string]record.TagList{},
		failed: map[string]error{},
	}
}

// list returns the tags of a repository that have an order, newest first. It lists them if the recorded list is too
// old, a person asks, or force is set.
//
// known are tags that exist: a list without one of them is incomplete.
func (l *tagLists) list(
	ctx context.Context, repository string, from Source, known []string, force bool,
) ([]tags.Tag, error) {
	a := l.asker
	kept, ok := a.Record.Lists[repository]
	age := a.Now().Sub(kept.At) // negative: the clock was wrong then
	_, isListed := from.(listedSource)
	due := !ok || force || l.all || isListed || age < 0 || age >= a.Policy.ListEvery || a.Record.Sources[repository].List
	if due && !l.asked[repository] {
		if err := l.fetch(ctx, repository, from, known); err != nil {
			return nil, err
		}
	}
	if list, ok := l.tags[repository]; ok {
		return list, nil
	}
	if !ok || kept.Error != "" {
		return nil, cmp.Or(l.failed[repository], fmt.Errorf("%s: no tag list: %s", repository, kept.Error))
	}
	return a.Memory.ordered(repository, kept.Tags, a.Policy.RuleFor(repository).Scheme), nil
}

// haver is a Source that detects an incomplete list by the tags that it lacks: see registry.TagsHaving. With an error
// it may return existing tags.
type haver interface {
	TagsHaving(ctx context.Context, repository string, known []string) ([]string, error)
}

// fetch lists the tags of a repository. If the source fails, it returns an older list and other known tags.
func (l *tagLists) fetch(ctx context.Context, repository string, from Source, known []string) error {
	a := l.asker
	end := a.Progress.Heartbeat()
	ask := from.Tags
	if h, ok := from.(haver); ok {
		ask = func(ctx context.Context, repository string) ([]string, error) {
			return h.TagsHaving(ctx, repository, known)
		}
	}
	names, err := ask(ctx, repository)
	end()
	if err != nil && ctx.Err() != nil {
		return err
	}
	l.asked[repository] = true
	kept, ok := a.Record.Lists[repository]
	switch {
	case err == nil:
		s := a.Policy.RuleFor(repository).Scheme
		list, unrecognized, malformed := parseAll(names, s)
		if malformed > 0 {
			a.Log.Info("malformed tags in the list", "repository", repository, "count", malformed)
		}
		l.tags[repository] = list
		if _, isListed := from.(listedSource); !isListed {
			l.kept[repository] = record.TagList{
				At: a.Now(), Unrecognized: unrecognized, Malformed: malformed, Unread: unreadTags(names, known, s),
			}
		}
		return nil
	case servesNoLists(err):
		l.recordNoList(repository, err)
	default:
		l.failed[repository] = listError(repository, err)
	}
	if ok && kept.Error == "" {
		a.Log.Warn("using an old tag list", "repository", repository, "since", kept.At, "err", err)
		names = append(names, kept.Tags...)
	}
	if len(names) > 0 {
		slices.Sort(names)
		l.tags[repository], _, _ = parseAll(slices.Compact(names), a.Policy.RuleFor(repository).Scheme)
		return nil
	}
	return err
}

// unreadTags returns tags that were not parsed, for later rounds: the highest, those that look newer than a known one,
// and one that a pattern orders beside a known one.
func unreadTags(names, known []string, s tags.Scheme) []string {
	out := tags.Unread(names, s, keptTags)
	for _, tag := range known {
		from, err := s.Parse(tag)
		if other := tags.OrderedBeside(tag, names); err != nil && other != "" && !slices.Contains(out, other) {
			out = append(out, other)
		}
		if err != nil {
			continue
		}
		for _, n := range tags.FindNotUnderstood(names, from, s, maxNotUnderstood) {
			if _, err := s.Parse(n.Tag); err != nil && !slices.Contains(out, n.Tag) {
				out = append(out, n.Tag)
			}
		}
	}
	return out
}

// recordNoList records that a host serves no lists. The tags of an older list are kept.
func (l *tagLists) recordNoList(repository string, err error) {
	a, se := l.asker, sourceError(err)
	kept := a.Record.Lists[repository]
	no := &record.NoList{Host: se.Host, Cause: se.Cause, HTTPStatus: se.Status, Error: err.Error(), Since: a.Now().UTC()}
	if kept.NoList != nil && !kept.NoList.Since.After(no.Since) {
		no.Since = kept.NoList.Since
	}
	if len(kept.Tags) == 0 || kept.Error != "" {
		kept = record.TagList{At: a.Now(), Error: err.Error()}
	}
	kept.NoList = no
	a.Record.Lists.Set(repository, kept)
}

// noList returns why a repository has no tag list; nil if it has one, or if it failed.
func (l *tagLists) noList(repository string) *record.NoList {
	if l.kept[repository].At.IsZero() { // otherwise there is a new one
		return l.asker.Record.Lists[repository].NoList
	}
	return nil
}

// memory returns the memory for the list of a repository; nil for one that this round fetched, which may have a hundred
// thousand tags.
func (l *tagLists) memory(repository string) *Memory {
	if _, fetched := l.tags[repository]; fetched {
		return nil
	}
	return l.asker.Memory
}

// unread returns tags that were not parsed, of the newest list.
func (l *tagLists) unread(repository string) []string {
	if kept, is := l.kept[repository]; is {
		return kept.Unread
	}
	return l.asker.Record.Lists[repository].Unread
}

// listError returns a failure of a source that is about its tag list.
func listError(repository string, err error) error {
	f := sourceError(err)
	f.Repository = cmp.Or(f.Repository, repository)
	if !strings.HasPrefix(f.Err.Error(), "tag list") {
		f.Err = fmt.Errorf("tag list: %w", f.Err)
	}
	return &f
}

// servesNoLists reports whether a host serves no tag lists, or none to this node.
func servesNoLists(err error) bool {
	se, ok := errors.AsType[*release.SourceError](err)
	switch {
	case errors.Is(err, release.ErrTornList):
		return false
	case errors.Is(err, release.ErrNotFound):
		return true
	default:
		return ok && !se.Unasked && se.Status >= 401 && se.Status <= 405
	}
}

// trim drops the tags that the rest of the round does not need: the lists of all repositories may have a hundred
// thousand tags each.
func (l *tagLists) trim(repository string, follows []followed) {
	if list, ok := l.tags[repository]; ok {
		l.tags[repository] = trimTags(list, follows)
	}
}

// save records the part of the lists that later polls need.
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

// trimTags selects from a list, newest first: the highest tags of each form, and for each followed tag those that it
// may move to, that look newer, and its builds and revisions. So many new tags do not hide the older line of a policy.
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
	for _, form := range []tags.Form{tags.Short, tags.Intermediate, tags.Long, tags.Single} {
		choose(func(t tags.Tag) bool { return t.Form() == form })
	}
	names := make([]string, 0, len(list))
	for _, t := range list {
		names = append(names, t.String())
	}
	for _, from := range follows {
		for _, n := range tags.FindNotUnderstood(names, from.Tag, from.rule.Scheme, maxNotUnderstood) {
			keep[n.Tag] = true
		}
		choose(func(t tags.Tag) bool {
			change := tags.ChangeBetween(from.Tag, t)
			_, refused := from.rule.RefusesTag(t, change)
			return tags.InLine(from.Tag, t) && change > tags.Same && !refused
		})
		for _, form := range []tags.Form{tags.Intermediate, tags.Long} {
			choose(func(t tags.Tag) bool { return t.Form() == form && t.IsBuildOf(from.Tag) })
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

// parseAll parses the tags that can be ordered, sorts them newest first, and counts the others.
func parseAll(names []string, s tags.Scheme) (list []tags.Tag, unrecognized, malformed int) {
	for _, n := range names {
		t, err := s.Parse(n)
		switch {
		case err == nil:
			list = append(list, t)
		case errors.Is(err, tags.ErrMalformed):
			malformed++
		default:
			unrecognized++
		}
	}
	slices.SortFunc(list, func(x, y tags.Tag) int { return tags.Compare(y, x) })
	return list, unrecognized, malformed
}

// ofForm returns the tags of one form, in their order.
func ofForm(list []tags.Tag, f tags.Form) []tags.Tag {
	return slices.DeleteFunc(slices.Clone(list), func(t tags.Tag) bool { return t.Form() != f })
}

// sameApp returns a filter for the tags of one application version.
func sameApp(short tags.Tag) func(tags.Tag) bool {
	return func(t tags.Tag) bool { return t.App() == short.App() }
}

// Memory keeps what was read from tag lists for the next round, since few lists change between two rounds. It compares
// the whole input, holds only what the last round needed, and is not saved. The zero value is empty; nil keeps nothing.
type Memory struct {
	orders memo[string, order] // by repository
	newer  memo[newerKey, newer]
}

// memo has the results of the last round, and of this one.
type memo[K comparable, V any] struct{ last, now map[K]V }

// get returns the result that is of the same input, or a new one. It keeps the result.
func (k *memo[K, V]) get(key K, isSame func(V) bool, read func() V) V {
	v, known := k.now[key]
	if !known || !isSame(v) {
		v, known = k.last[key]
	}
	if !known || !isSame(v) {
		v = read()
	}
	if k.now == nil {
		k.now = map[K]V{}
	}
	k.now[key] = v
	return v
}

// order is a list in its order, newest first.
type order struct {
	names  []string
	scheme tags.Scheme
	tags   []tags.Tag
}

// newerKey is a followed tag.
type newerKey struct {
	repository string
	from       tags.Tag
	scheme     tags.Scheme
}

// newer are the tags of a list that look newer than the followed one, but are not understood.
type newer struct {
	list          []tags.Tag
	unread        []string
	notUnderstood []tags.NotUnderstood
}

// begin starts a round. One that reads no list keeps what is known.
func (m *Memory) begin() {
	if m == nil || len(m.orders.now)+len(m.newer.now) == 0 {
		return
	}
	m.orders.last, m.orders.now = m.orders.now, nil
	m.newer.last, m.newer.now = m.newer.now, nil
}

// ordered returns the tags of a repository's list that have an order, newest first.
func (m *Memory) ordered(repository string, names []string, s tags.Scheme) []tags.Tag {
	read := func() order {
		list, _, _ := parseAll(names, s)
		return order{slices.Clone(names), s, list}
	}
	if m == nil {
		return read().tags
	}
	isSame := func(o order) bool { return o.scheme == s && slices.Equal(o.names, names) }
	return m.orders.get(repository, isSame, read).tags
}

// notUnderstood returns the tags of a list, and of those that were not parsed, that look newer than the followed one.
func (m *Memory) notUnderstood(
	repository string, list []tags.Tag, unread []string, from tags.Tag, s tags.Scheme,
) []tags.NotUnderstood {
	read := func() newer {
		names := slices.Clone(unread)
		for _, t := range list {
			names = append(names, t.String())
		}
		found := tags.FindNotUnderstood(names, from, s, maxNotUnderstood)
		return newer{slices.Clone(list), slices.Clone(unread), found}
	}
	if m == nil {
		return read().notUnderstood
	}
	isSame := func(n newer) bool { return slices.Equal(n.list, list) && slices.Equal(n.unread, unread) }
	return m.newer.get(newerKey{repository, from, s}, isSame, read).notUnderstood
}
