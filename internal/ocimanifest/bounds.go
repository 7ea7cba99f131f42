// SPDX-License-Identifier: Apache-2.0

package ocimanifest

import (
	"errors"
	"fmt"
)

// Bounds of what a document holds. Its size bounds nothing: 4 MiB of "{}," are
// 1.4 million descriptors, which take half a gigabyte when they are decoded.
const (
	// MaxEntries of one list: descriptors of an index, history of a config. A tree
	// of layouts has some thousand images at most.
	MaxEntries = 20_000
	// MaxMembers of all lists and objects of a document together.
	MaxMembers = 200_000
	// MaxLayers is what the kernel stacks in one overlay file system
	// (OVL_MAX_STACK): more can be fetched and unpacked, and then not be mounted.
	MaxLayers = 500
	// maxDepth of lists and objects in one another; an index has four.
	maxDepth = 64
)

// ErrTooMany: a document with more in it than its bounds.
var ErrTooMany = errors.New("too many")

// Bounds counts what a JSON document holds before anybody decodes it: lists and
// objects, and what is in them, without keeping any of it. It is written the
// bytes, in any parts, and does not judge whether they are JSON.
type Bounds struct {
	Entries int // of one list, at most
	Members int // of all lists and objects, at most

	members int
	depth   int
	lists   [maxDepth]bool // by depth: a list, and not an object
	entries [maxDepth]int  // by depth
	text    bool           // in a string
	escaped bool           // behind a backslash in a string
}

// CheckBounds is the error of a document that holds more than manifests, indexes
// and configs may.
func CheckBounds(document []byte) error {
	_, err := NewBounds().Write(document)
	return err
}

// NewBounds are those of manifests, indexes and configs.
func NewBounds() *Bounds { return &Bounds{Entries: MaxEntries, Members: MaxMembers} }

// Write counts. The error is ErrTooMany.
func (b *Bounds) Write(p []byte) (int, error) {
	for i, c := range p {
		if b.text {
			b.text, b.escaped = c != '"' || b.escaped, c == '\\' && !b.escaped
			continue
		}
		if err := b.count(c); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

// count takes a byte outside of strings.
func (b *Bounds) count(c byte) error {
	switch c {
	case '"':
		b.text = true
	case '[', '{':
		if b.depth == maxDepth {
			return fmt.Errorf("%w lists and objects in one another: over %d", ErrTooMany, maxDepth)
		}
		b.lists[b.depth], b.entries[b.depth] = c == '[', 0
		b.depth++
		return b.another() // as if none was empty
	case ']', '}':
		b.depth = max(b.depth-1, 0)
	case ',':
		return b.another()
	}
	return nil
}

// another counts one more entry of the list or object that the document is in.
func (b *Bounds) another() error {
	at := max(b.depth-1, 0)
	b.members++
	b.entries[at]++
	switch {
	case b.lists[at] && b.entries[at] > b.Entries:
		return fmt.Errorf("%w entries of a list: over %d", ErrTooMany, b.Entries)
	case b.members > b.Members:
		return fmt.Errorf("%w members: over %d", ErrTooMany, b.Members)
	}
	return nil
}
