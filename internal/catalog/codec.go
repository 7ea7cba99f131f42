// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"errors"
	"strconv"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

// Codec decodes and encodes pages. Each release of a set has the list of all its members, which is most of a page: a
// list is read and checked once, and shared by all releases that have it, in all pages. The zero value has read none.
type Codec struct {
	mu      sync.Mutex
	lists   map[string][]string // by their JSON; each has members, and was checked
	checked checked
}

// checked are lists of members that were checked. Nothing changes a list.
type checked map[listOf]bool

// listOf is the identity of a list that is not empty.
type listOf struct {
	first *string
	size  int
}

func (c checked) has(list []string) bool { return len(list) > 0 && c[listOf{&list[0], len(list)}] }

// DecodePage decodes a page of an image and checks all of it. digest is the one that the
// manifest names.
func DecodePage(data []byte, ref PageRef) (Page, error) { return new(Codec).Decode(data, ref) }

// Decode is DecodePage.
func (c *Codec) Decode(data []byte, ref PageRef) (Page, error) {
	if d := digest.FromBytes(data); d != ref.Digest || int64(len(data)) != ref.Size {
		return Page{}, newError(KindPage, "%s: the page has digest %s, want %s", ref.Image, d, ref.Digest)
	}
	var p Page
	var lists [][]string
	err := unpacked(data, MaxPage, func(text []byte) error {
		text, lists = c.cut(text)
		bounds := ocimanifest.Bounds{Entries: MaxReleases, Members: MaxReleases * maxUnknown * 2}
		for _, list := range lists {
			bounds.Members -= len(list)
		}
		if _, err := bounds.Write(text); err != nil {
			return err
		}
		return unmarshal(text, &p)
	})
	switch {
	case errors.Is(err, outside.ErrTooLarge):
		return Page{}, newError(KindTooLarge, "%s: the page has more than %d bytes unpacked", ref.Image, MaxPage)
	case err != nil:
		return Page{}, wrap(KindFormat, err, "%s: page", ref.Image)
	}
	if p.Image != ref.Image {
		return Page{}, newError(KindPage, "%s: the page belongs to %q", ref.Image, p.Image)
	}
	of := checked{}
	for n := range p.Releases {
		if r := &p.Releases[n]; lists != nil && len(r.Members) > 0 {
			at, _ := strconv.Atoi(r.Members[0]) // as cut wrote it
			r.Members = lists[at]
			of[listOf{&r.Members[0], len(r.Members)}] = true
		}
	}
	return p, p.check(of)
}

// Encode is Page.Encode.
func (c *Codec) Encode(p Page) ([]byte, error) {
	of := checked{}
	for _, r := range p.Releases {
		if len(r.Members) == 0 {
			continue
		}
		if err := c.checkOnce(r); err != nil {
			return nil, wrap(KindFormat, err, "%s", p.Image)
		}
		of[listOf{&r.Members[0], len(r.Members)}] = true
	}
	return p.encode(of)
}

// checkOnce checks a list of members, if it was not yet.
func (c *Codec) checkOnce(r Release) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.checked.has(r.Members) {
		return nil
	}
	if c.checked == nil {
		c.checked = checked{}
	}
	err := r.checkMembers()
	c.checked[listOf{&r.Members[0], len(r.Members)}] = err == nil
	return err
}

// cut returns the JSON of a page with a number in the place of each list of members, and these lists. Where anything is
// written otherwise than Encode does, or is not valid, it cuts nothing: then there is one reader less who could read it
// in another way.
func (c *Codec) cut(text []byte) ([]byte, [][]string) {
	const key, depthOfRelease = "members", 3
	var lists [][]string
	short := make([]byte, 0, len(text)/4)
	depth, done := 0, 0
	for n := 0; n < len(text); n++ {
		switch text[n] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			begin := n + 1
			end, isPlain := textEnd(text, begin)
			if n = end; depth != depthOfRelease || isPlain && string(text[begin:end]) != key {
				continue
			}
			var list []string
			size := 0
			if isPlain { // otherwise it may be the key, too
				list, size = c.list(text[min(n+1, len(text)):])
			}
			if list == nil {
				return text, nil
			}
			short = append(append(short, text[done:n+1]...), `:["`...)
			short = append(strconv.AppendInt(short, int64(len(lists)), 10), `"]`...)
			lists = append(lists, list)
			n += size
			done = n + 1
		}
	}
	return append(short, text[done:]...), lists
}

// list returns the list of members behind a key, and how many bytes it has; nil: it is not a valid one, or empty.
func (c *Codec) list(text []byte) (list []string, size int) {
	size = bytes.IndexByte(text, ']') + 1
	if size == 0 || !bytes.HasPrefix(text, []byte(":[")) {
		return nil, 0
	}
	raw := text[1:size]
	c.mu.Lock()
	defer c.mu.Unlock()
	if list, ok := c.lists[string(raw)]; ok {
		return list, size
	}
	if unmarshal(raw, &list) != nil || checkMembers("", list) != nil {
		return nil, 0
	}
	if c.lists == nil {
		c.lists = map[string][]string{}
	}
	c.lists[string(raw)] = list
	return list, size
}
