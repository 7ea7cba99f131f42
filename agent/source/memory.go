// SPDX-License-Identifier: Apache-2.0

package source

import (
	"slices"

	"github.com/kubic-project/image-update-agent/tags"
)

// Memory keeps what was read from tag lists for the next round, since few lists change between two rounds. It compares
// the whole input, holds only what the last round needed, and is not saved. The zero value is empty; nil keeps nothing.
type Memory struct{ last, now readings }

type readings struct {
	orders map[string]order   // by repository
	newer  map[newerKey]newer // not understood
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
	if m == nil || len(m.now.orders)+len(m.now.newer) == 0 {
		return
	}
	m.last, m.now = m.now, readings{}
}

// ordered returns the tags of a repository's list that have an order, newest first.
func (m *Memory) ordered(repository string, names []string, s tags.Scheme) []tags.Tag {
	if m == nil {
		list, _, _ := parseAll(names, s)
		return list
	}
	for _, known := range []order{m.now.orders[repository], m.last.orders[repository]} {
		if known.tags != nil && known.scheme == s && slices.Equal(known.names, names) {
			return m.keepOrder(repository, known)
		}
	}
	list, _, _ := parseAll(names, s)
	return m.keepOrder(repository, order{slices.Clone(names), s, list})
}

func (m *Memory) keepOrder(repository string, o order) []tags.Tag {
	if m.now.orders == nil {
		m.now.orders = map[string]order{}
	}
	m.now.orders[repository] = o
	return o.tags
}

// notUnderstood returns the tags of a list, and of those that were not parsed, that look newer than the followed one.
func (m *Memory) notUnderstood(
	repository string, list []tags.Tag, unread []string, from tags.Tag, s tags.Scheme,
) []tags.NotUnderstood {
	key := newerKey{repository, from, s}
	if m != nil {
		for _, known := range []newer{m.now.newer[key], m.last.newer[key]} {
			if known.list != nil && slices.Equal(known.list, list) && slices.Equal(known.unread, unread) {
				return m.keepNewer(key, known)
			}
		}
	}
	names := slices.Clone(unread)
	for _, t := range list {
		names = append(names, t.String())
	}
	found := tags.FindNotUnderstood(names, from, s, maxNotUnderstood)
	if m == nil {
		return found
	}
	return m.keepNewer(key, newer{slices.Clone(list), slices.Clone(unread), found})
}

func (m *Memory) keepNewer(key newerKey, n newer) []tags.NotUnderstood {
	if m.now.newer == nil {
		m.now.newer = map[newerKey]newer{}
	}
	m.now.newer[key] = n
	return n.notUnderstood
}
