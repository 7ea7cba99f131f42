// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"errors"
	"fmt"
	"strings"
)

// maxLength is the OCI distribution specification's limit for a tag, in bytes.
const maxLength = 128

// Parse reads a tag without settings, as the zero [Scheme] does. Its error wraps
// [ErrMalformed], [ErrUnrecognized] or [ErrInvalid].
func Parse(text string) (Tag, error) { return Scheme{}.Parse(text) }

// The marks of SUSE's grammar.
const (
	markRev   = "-rev"
	markBuild = "-build"
)

// ociFault returns why text is not an OCI tag, [A-Za-z0-9_][A-Za-z0-9._-]{0,127}
// (https://github.com/opencontainers/distribution-spec, "Pulling manifests"); "" if it is one.
func ociFault(text string) string {
	if text == "" {
		return "empty"
	}
	if len(text) > maxLength {
		return fmt.Sprintf("%d bytes, at most %d", len(text), maxLength)
	}
	for i := range len(text) {
		if c := text[i]; !isWord(c) && (i == 0 || c != '.' && c != '-') {
			return fmt.Sprintf("%q at byte %d", text[i:i+1], i)
		}
	}
	return ""
}

// fault says what the scanner found wrong and in which part of the tag. The zero value is no fault.
type fault struct{ what, part string }

func (f fault) String() string { return f.what + " " + f.part }

// scan parses SUSE's grammar: app [ "-rev" num [ "-build" num *( "." num ) ] ].
func scan(text string) (Tag, fault) {
	v := vLength(text)
	end, what := scanDotted(text, v)
	if what != "" {
		return Tag{}, fault{what, "application version"}
	}
	tag := Tag{raw: text, version: newSpan(v, end), hasV: v == 1}
	if end == len(text) {
		return tag, fault{}
	}

	if !strings.HasPrefix(text[end:], markRev) {
		return Tag{}, fault{"text after", "application version"}
	}
	start := end + len(markRev)
	if end, what = scanNumber(text, start); what != "" {
		return Tag{}, fault{what, "revision"}
	}
	tag.rev = newSpan(start, end)
	if end == len(text) {
		return tag, fault{}
	}

	if !strings.HasPrefix(text[end:], markBuild) {
		return Tag{}, fault{"text after", "revision"}
	}
	start = end + len(markBuild)
	if end, what = scanDotted(text, start); what != "" {
		return Tag{}, fault{what, "build"}
	}
	if end < len(text) {
		return Tag{}, fault{"text after", "build"}
	}
	tag.build = newSpan(start, end)
	return tag, fault{}
}

// scanDotted reads num *( "." num ) from start and returns its end.
func scanDotted(text string, start int) (end int, what string) {
	end, what = scanNumber(text, start)
	for what == "" && end < len(text) && text[end] == '.' {
		if end, what = scanNumber(text, end+1); what == "empty" {
			what = "empty component in"
		}
	}
	return end, what
}

// scanNumber reads num from start and returns its end.
func scanNumber(text string, start int) (end int, what string) {
	end = skipDigits(text, start)
	switch {
	case end == start && end < len(text) && text[end] != '.' && text[end] != '-':
		return end, "no number in"
	case end == start:
		return end, "empty"
	case text[start] == '0' && end > start+1:
		return end, "leading zero in"
	}
	return end, ""
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isWord(c byte) bool { return isLetter(c) || isDigit(c) || c == '_' }

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

// dateDigits is the length of a date without separators, 20260909. A build with at least that many digits and no dot is
// not from OBS.
const dateDigits = 8

// explain decides whether a text that no grammar accepts uses SUSE's scheme and, if so, why it is malformed. The
// package comment states the rule.
func explain(text string, f fault) (reason string, ours bool) {
	head := numberLength(text)
	if head == 0 {
		return "", false
	}
	rest := strings.ToLower(text[head:])
	switch {
	case hasRevMark(rest):
		if _, lower := scan(strings.ToLower(text)); lower == (fault{}) {
			return "upper case", true
		}
		return f.String(), true
	case isBuildAlone(rest):
		return "build without revision", true
	}
	return "", false
}

// numberLength returns the length of the dotted number, valid or not, at the start of text, including its v; 0 if there
// is none.
func numberLength(text string) int {
	v := vLength(strings.ToLower(text[:1]))
	if v == len(text) || !isDigit(text[v]) {
		return 0
	}
	return v + digitsAndDots(text[v:])
}

// hasRevMark finds a "-rev" that does not start a longer word.
func hasRevMark(rest string) bool {
	for {
		_, after, found := strings.Cut(rest, markRev)
		if !found || after == "" || !isLetter(after[0]) {
			return found
		}
		rest = after
	}
}

func isBuildAlone(rest string) bool {
	build, found := strings.CutPrefix(rest, markBuild)
	if !found || digitsAndDots(build) < len(build) {
		return false
	}
	return len(build) < dateDigits || strings.Contains(build, ".")
}

func digitsAndDots(text string) int {
	return len(text) - len(strings.TrimLeft(text, ".0123456789"))
}

// Class says which form a tag has or why it has none.
type Class string

// The classes, spelled as `tags parse` prints them.
const (
	ClassShort        Class = "short"
	ClassIntermediate Class = "intermediate"
	ClassLong         Class = "long"
	ClassSingle       Class = "single"
	ClassMalformed    Class = "malformed"    // SUSE's scheme, broken
	ClassUnrecognized Class = "unrecognized" // no version that can be ordered
	ClassInvalid      Class = "invalid"      // not an OCI tag
)

// Classify returns the class of text without settings.
func Classify(text string) Class {
	tag, err := Parse(text)
	return classOf(tag, err)
}

// classOf returns the class for the result of [Scheme.Parse].
func classOf(tag Tag, err error) Class {
	switch {
	case err == nil:
		return Class(tag.Form().String())
	case errors.Is(err, ErrInvalid):
		return ClassInvalid
	case errors.Is(err, ErrUnrecognized):
		return ClassUnrecognized
	}
	return ClassMalformed
}
