// SPDX-License-Identifier: Apache-2.0

package ocimanifest

import (
	"errors"
	"fmt"
)

// Limits of a document's contents. Its size is not enough: 4 MiB of "{}," are 1.4 million descriptors, which take half
// a gigabyte when decoded.
const (
	// MaxEntries limits one list: descriptors of an index, history of a config. A tree of layouts has some thousand
	// images at most.
	MaxEntries = 20_000
	// MaxMembers limits all lists and objects of a document together.
	MaxMembers = 200_000
	// MaxLayers is the kernel's limit for one overlay filesystem (OVL_MAX_STACK): more layers could be pulled and
	// unpacked, but not mounted.
	MaxLayers = 500
	// maxDepth limits nested lists and objects; an index has four.
	maxDepth = 64
)

// ErrTooMany: a document exceeds its limits.
var ErrTooMany = errors.New("too many")

// Bounds counts the contents of a JSON document before it is decoded: lists and objects, and their elements, without
// keeping them. The document is written to it, in any parts; it does not check whether that is valid JSON.
type Bounds struct {
	Entries int // limit of one list
	Members int // limit of all lists and objects

	members int
	depth   int
	lists   [maxDepth]bool // by depth: true for a list, false for an object
	entries [maxDepth]int  // by depth
	text    bool           // inside a string
	escaped bool           // after a backslash in a string
}

// CheckBounds returns an error if a document exceeds the limits of manifests, indexes and configs.
func CheckBounds(document []byte) error {
	_, err := NewBounds().Write(document)
	return err
}

// NewBounds returns the limits of manifests, indexes and configs.
func NewBounds() *Bounds { return &Bounds{Entries: MaxEntries, Members: MaxMembers} }

// Write counts. It returns ErrTooMany.
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

// count handles a byte outside of strings.
func (b *Bounds) count(c byte) error {
	switch c {
	case '"':
		b.text = true
	case '[', '{':
		if b.depth == maxDepth {
			return fmt.Errorf("%w nested lists and objects: over %d", ErrTooMany, maxDepth)
		}
		b.lists[b.depth], b.entries[b.depth] = c == '[', 0
		b.depth++
		return b.another() // empty ones count as one
	case ']', '}':
		b.depth = max(b.depth-1, 0)
	case ',':
		return b.another()
	}
	return nil
}

// another counts one more element of the current list or object.
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
