// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// maxReason bounds the reason, in bytes: enough for the sentence that the status
// begins with, little enough for every refresh.
const maxReason = 200

// reason is the grain's, as it is written: one line that means itself to YAML and
// to Salt. Unlike tags and digests it may quote what others have said, so that
// what cannot be written is left out, and is no error.
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

// reasonRune is what becomes of a character; negative: it is left out.
func reasonRune(r rune) rune {
	switch {
	case unicode.IsSpace(r):
		return ' '
	case r == '"', r == '\'', r == '\\':
		return '`' // needs no escape, and Salt evaluates no u'...'
	case r == '#':
		return -1 // behind | or > YAML's parsers disagree, see oddText
	case r == utf8.RuneError, r > 0xFFFF, !unicode.IsPrint(r):
		return -1 // old PyYAML reads no further than the basic plane
	}
	return r
}

// reasonEntry is no entry where there is no reason.
func (g Grain) reasonEntry() entry {
	if g.Reason == "" {
		return entry{key: keyReason}
	}
	return scalar(keyReason, quote(g.Reason), func(n *yaml.Node) bool { return isString(n, g.Reason) })
}
