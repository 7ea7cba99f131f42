// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// maxReason limits the reason, in bytes: enough for the status' first sentence, small enough for every refresh.
const maxReason = 200

// reason returns the reason as written to the grain: one line without special meaning in YAML and Salt. Unlike tags and
// digests it may quote others' text, so characters that cannot be written are dropped without an error.
func reason(text string) string {
	text = strings.Join(strings.Fields(strings.Map(reasonRune, text)), " ")
	if len(text) <= maxReason {
		return text
	}
	end := maxReason
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.TrimRight(text[:end], " ")
}

// reasonRune returns the replacement of a character; negative: it is dropped.
func reasonRune(r rune) rune {
	switch {
	case unicode.IsSpace(r):
		return ' '
	case r == '"', r == '\'', r == '\\':
		return '`' // needs no escape, and Salt does not evaluate u'...'
	case r == '#':
		return -1 // after | or > YAML parsers disagree, see oddText
	case r == utf8.RuneError, r > 0xFFFF, !unicode.IsPrint(r):
		return -1 // old PyYAML supports only the basic plane
	}
	return r
}

// reasonEntry returns an empty entry if there is no reason.
func (g Grain) reasonEntry() entry {
	if g.Reason == "" {
		return entry{key: keyReason}
	}
	return scalar(keyReason, quote(g.Reason), func(n *yaml.Node) bool { return isString(n, g.Reason) })
}
