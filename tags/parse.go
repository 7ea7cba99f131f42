// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"fmt"
	"strings"
)

// maxLength is the OCI distribution specification's limit for a tag, in bytes.
const maxLength = 128

// Parse reads a tag of the core grammar. Its error wraps [ErrMalformed],
// [ErrForeign] or [ErrInvalid].
func Parse(text string) (Tag, error) { return parse(text, spelling{rev: coreRev, build: coreBuild}) }

// spelling is what introduces the revision and the build.
type spelling struct{ rev, build string }

// The marks of the core grammar, as they were shipped.
const (
	coreRev   = "-rev"
	coreBuild = "-build"
)

// parse reads text in one spelling. The OCI limits come first: they bound all
// that follows.
func parse(text string, sp spelling) (Tag, error) {
	if detail := ociFault(text); detail != "" {
		return Tag{}, invalid(text, detail)
	}
	return parseChecked(text, sp)
}

func parseChecked(text string, sp spelling) (Tag, error) {
	tag, f := scan(text, sp)
	if f == (fault{}) {
		return tag, nil
	}
	if reason, ours := explain(text, sp, f); ours {
		return Tag{}, &textError{text, ErrMalformed, reason}
	}
	return Tag{}, &textError{text, ErrForeign, ""}
}

// ociFault holds text against [A-Za-z0-9_][A-Za-z0-9._-]{0,127}
// (https://github.com/opencontainers/distribution-spec, "Pulling manifests")
// and gives "" for an OCI tag.
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

// fault says what the scan stumbled over and in which part of the tag; the zero
// value is none.
type fault struct{ what, part string }

func (f fault) String() string { return f.what + " " + f.part }

// scan is the grammar: app [ rev num [ build num *( "." num ) ] ]. Its masks
// change nothing, as text is at most maxLength bytes.
func scan(text string, sp spelling) (Tag, fault) {
	tag := Tag{raw: text}
	end, what := scanDotted(text, vLength(text))
	if what != "" {
		return Tag{}, fault{what, "application version"}
	}
	tag.appEnd = uint8(end & 0xff)
	if end == len(text) {
		return tag, fault{}
	}

	if !strings.HasPrefix(text[end:], sp.rev) {
		return Tag{}, fault{"text after", "application version"}
	}
	start := end + len(sp.rev)
	if end, what = scanNumber(text, start); what != "" {
		return Tag{}, fault{what, "revision"}
	}
	tag.revStart, tag.revEnd = uint8(start&0xff), uint8(end&0xff)
	if end == len(text) {
		return tag, fault{}
	}

	if !strings.HasPrefix(text[end:], sp.build) {
		return Tag{}, fault{"text after", "revision"}
	}
	start = end + len(sp.build)
	if end, what = scanDotted(text, start); what != "" {
		return Tag{}, fault{what, "build"}
	}
	if end < len(text) {
		return Tag{}, fault{"text after", "build"}
	}
	tag.buildStart = uint8(start & 0xff)
	return tag, fault{}
}

// scanDotted reads num *( "." num ) from start and gives its end.
func scanDotted(text string, start int) (end int, what string) {
	end, what = scanNumber(text, start)
	for what == "" && end < len(text) && text[end] == '.' {
		if end, what = scanNumber(text, end+1); what == "empty" {
			what = "empty component in"
		}
	}
	return end, what
}

// scanNumber reads num from start and gives its end.
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
