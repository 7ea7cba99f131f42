// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Kind is why the catalog cannot be changed as asked.
type Kind string

// The kinds of errors.
const (
	KindChannel   Kind = "channel"   // there is no such channel
	KindExists    Kind = "exists"    // the channel exists already
	KindImage     Kind = "image"     // the channel lists no such image or release, or several
	KindTag       Kind = "tag"       // the registry has no such tag, or the tag floats
	KindDigest    Kind = "digest"    // the tag names another digest than the one that was given
	KindPlatform  Kind = "platform"  // the image is not for a platform
	KindWithdrawn Kind = "withdrawn" // the release was withdrawn
	KindAgain     Kind = "again"     // the channel has withdrawn the release, and the request does not offer it again
	KindSoak      Kind = "soak"      // the channel has not offered the release long enough
	KindSet       Kind = "set"       // a part of a set would be changed without the rest
	KindFrozen    Kind = "frozen"    // the channel is frozen, and the request adds or promotes
	KindSigned    Kind = "signed"    // the channel is signed, and there is no key
	KindUnsigned  Kind = "unsigned"  // a key is given, and what it would build upon has no valid signature
	KindOlder     Kind = "older"     // the channel went back to an older version than one that was published
	KindRaced     Kind = "raced"     // another publisher has published in the meantime
	KindClock     Kind = "clock"     // this machine's clock is ahead of the registry's
	KindImmutable Kind = "immutable" // the registry does not let the tag of the channel move
	KindTimeout   Kind = "timeout"   // the registry does not list what it has stored
	KindInput     Kind = "input"     // a file or an argument is not valid
)

// Error is why the catalog cannot be changed as asked.
type Error struct {
	Kind   Kind
	Object string // the channel, image, tag or file
	Text   string
	Near   []string // the nearest right things
	Err    error    // the cause; nil: there is none
	Base   uint64   // of KindUnsigned: the newest version that has a valid signature; 0: it is not known
}

func (e *Error) Error() string {
	text := e.Object + ": " + e.Text
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if len(e.Near) > 0 {
		text += ", did you mean " + strings.Join(e.Near, " or ") + "?"
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func refuse(kind Kind, object, format string, args ...any) *Error {
	return &Error{Kind: kind, Object: object, Text: outside.Text(fmt.Sprintf(format, args...))}
}

// isKind reports whether an error has a kind.
func isKind(err error, kind Kind) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == kind
}

// Line is an image of a batch or of the arguments that is wrong.
type Line struct {
	Number int // of the batch; 0: an argument
	Text   string
	Err    error
}

// BatchError names all images of a request that are wrong. Nothing of the request was published.
type BatchError struct{ Lines []Line }

// wrongLines returns the error for images that are wrong; nil: none is.
func wrongLines(wrong []Line) error {
	switch len(wrong) {
	case 0:
		return nil
	case 1:
		if wrong[0].Number == 0 {
			return wrong[0].Err
		}
	}
	return &BatchError{Lines: wrong}
}

// IsInput reports whether all images are wrong as they are written.
func (e *BatchError) IsInput() bool {
	return !slices.ContainsFunc(e.Lines, func(l Line) bool { return !isKind(l.Err, KindInput) })
}

func (e *BatchError) Error() string {
	text := fmt.Sprintf("nothing was published: %d images are wrong", len(e.Lines))
	if len(e.Lines) == 1 {
		text = "nothing was published: one image is wrong"
	}
	for _, l := range e.Lines {
		text += "\n  "
		if l.Number > 0 {
			text += fmt.Sprintf("line %d: ", l.Number)
		}
		text += l.Err.Error()
	}
	return text
}

// near returns the candidates that are most like a word, at most two. They differ in at most a third of it, and one
// character more.
func near(word string, candidates []string) []string {
	best, found := len(word)/3+2, []string(nil)
	for _, c := range candidates {
		switch d := distance(word, c, best); {
		case d < best:
			best, found = d, []string{c}
		case d == best && len(found) == 1:
			found = append(found, c)
		}
	}
	return found
}

// distance is the number of characters to insert, remove or replace; over limit, any number
// above it.
func distance(a, b string, limit int) int {
	if max(len(a)-len(b), len(b)-len(a)) > limit {
		return limit + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
