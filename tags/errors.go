// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrInvalid says that the text is not an OCI tag.
	ErrInvalid = errors.New("not an OCI tag")
	// ErrUnrecognized says that the tag has no version that the scheme can order.
	ErrUnrecognized = errors.New("unrecognized")
	// ErrMalformed says that the tag uses SUSE's scheme and breaks its grammar. An example from registry.suse.com is
	// 1.5.4-rev5-build.
	ErrMalformed = errors.New("malformed")
)

// textError adds the text of a tag to one of these errors. It is formatted lazily: most tags of a busy repository may
// be unrecognized.
type textError struct {
	text   string // shortened
	cause  error
	detail string // the cause, for a person: "empty build"
}

// Error returns, for example, `tags: "1.5.4-rev5-build": malformed: empty build`.
func (e *textError) Error() string {
	if e.detail == "" {
		return fmt.Sprintf("tags: %q: %v", e.text, e.cause)
	}
	return fmt.Sprintf("tags: %q: %v: %s", e.text, e.cause, e.detail)
}

func (e *textError) Unwrap() error { return e.cause }

// Reason returns the cause from an error of this package without the text of the tag: "empty build". It is empty for an
// unrecognized tag and for other errors.
func Reason(err error) string {
	if e, ok := errors.AsType[*textError](err); ok {
		return e.detail
	}
	return ""
}

// invalid copies a bounded prefix of text, which may have any size.
func invalid(text, detail string) error {
	if len(text) > maxLength {
		text = strings.Clone(text[:maxLength]) + "…"
	}
	return &textError{text: text, cause: ErrInvalid, detail: detail}
}
