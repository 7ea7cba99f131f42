// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Kind is the kind of an error. Kinds are part of the machine interface.
type Kind string

// The kinds of errors.
const (
	KindFormat   Kind = "format"   // it cannot be decoded, or a field is not valid
	KindTooLarge Kind = "size"     // more bytes or entries than a reader takes
	KindName     Kind = "name"     // it was published as another catalog
	KindChannel  Kind = "channel"  // it is of another channel
	KindOlder    Kind = "older"    // a lower version than the known one
	KindChanged  Kind = "changed"  // the known version with another digest
	KindFuture   Kind = "future"   // created after now
	KindPage     Kind = "page"     // a page is not the one that the manifest names
	KindConflict Kind = "conflict" // another digest under a long tag that is listed
)

// Error is why a catalog, page or op is refused.
type Error struct {
	Kind Kind
	Text string
	Err  error // the cause; nil: there is none
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Text + ": " + e.Err.Error()
	}
	return e.Text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// NewError returns an error of a kind.
func NewError(kind Kind, format string, args ...any) *Error { return newError(kind, format, args...) }

func newError(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Text: outside.Text(fmt.Sprintf(format, args...))}
}

// wrap adds a place to an error.
func wrap(kind Kind, err error, format string, args ...any) *Error {
	return &Error{Kind: kind, Text: outside.Text(fmt.Sprintf(format, args...)), Err: outside.Error(err)}
}
