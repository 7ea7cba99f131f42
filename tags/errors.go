// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrInvalid says that the text is no OCI tag at all.
	ErrInvalid = errors.New("not an OCI tag")
	// ErrForeign says that the tag follows another scheme than SUSE's.
	ErrForeign = errors.New("foreign")
)

// MalformedError is a tag of SUSE's scheme that breaks its grammar, such as
// 1.5.4-rev5-build, which registry.suse.com really had.
type MalformedError struct {
	Tag    string // at most 128 bytes
	Reason string // what is wrong, for a person: "empty build"
}

// Error gives `tags: "1.5.4-rev5-build": malformed: empty build`.
func (e *MalformedError) Error() string {
	return fmt.Sprintf("tags: %q: malformed: %s", e.Tag, e.Reason)
}

// textError ties ErrInvalid or ErrForeign to a text. It is formatted only when
// somebody reads it: most tags of a busy repository may be foreign.
type textError struct {
	text   string
	cause  error
	detail string
}

func (e *textError) Error() string {
	if e.detail == "" {
		return fmt.Sprintf("tags: %q: %v", e.text, e.cause)
	}
	return fmt.Sprintf("tags: %q: %v: %s", e.text, e.cause, e.detail)
}

func (e *textError) Unwrap() error { return e.cause }

// Reason says what is wrong with a text that an error of this package is about,
// without the text: "empty build". Empty: it is foreign, or nothing is known.
func Reason(err error) string {
	if malformed, ok := errors.AsType[*MalformedError](err); ok {
		return malformed.Reason
	}
	if other, ok := errors.AsType[*textError](err); ok {
		return other.detail
	}
	return ""
}

func foreign(text string) error { return &textError{text: text, cause: ErrForeign} }

// invalid keeps a bounded copy of text only, which may be of any size.
func invalid(text, detail string) error {
	if len(text) > maxLength {
		text = strings.Clone(text[:maxLength]) + "…"
	}
	return &textError{text: text, cause: ErrInvalid, detail: detail}
}
