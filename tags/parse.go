// SPDX-License-Identifier: Apache-2.0

package tags

import (
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
	end = start
	for end < len(text) && isDigit(text[end]) {
		end++
	}
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
