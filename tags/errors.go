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
	// ErrMalformed says that the tag is of SUSE's scheme and breaks its grammar, as
	// 1.5.4-rev5-build does, which registry.suse.com really had.
	ErrMalformed = errors.New("malformed")
)

// textError ties one of these errors to a text. It is formatted only when it is
// read: most tags of a busy repository may be foreign.
type textError struct {
	text   string // bounded
	cause  error
	detail string // what is wrong, for a person: "empty build"
}

// Error gives `tags: "1.5.4-rev5-build": malformed: empty build`.
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
	if e, ok := errors.AsType[*textError](err); ok {
		return e.detail
	}
	return ""
}

// invalid keeps a bounded copy of text only, which may be of any size.
func invalid(text, detail string) error {
	if len(text) > maxLength {
		text = strings.Clone(text[:maxLength]) + "…"
	}
	return &textError{text: text, cause: ErrInvalid, detail: detail}
}
