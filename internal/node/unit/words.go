// SPDX-License-Identifier: Apache-2.0

package unit

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// split splits a text at unquoted white space, and removes the quotes (src/basic/extract-word.c). With escapes it
// decodes C escapes and keeps invalid ones. It drops a word with an unterminated quote: isWhole is false then.
func split(text string, escapes bool) (out []string, isWhole bool) {
	var word strings.Builder
	quote, inWord := byte(0), false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			inWord = true
			i += unescape(&word, text[i+1:], escapes)
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, inWord = c, true
		case quote == 0 && strings.IndexByte(space, c) >= 0:
			if inWord {
				out = append(out, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if inWord && (quote == 0 || !escapes) {
		out = append(out, word.String())
	}
	return out, quote == 0
}

// plainEscapes are the one-letter escapes.
var plainEscapes = map[byte]byte{
	'a': '\a', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v', 's': ' ',
	'\\': '\\', '"': '"', '\'': '\'',
}

// unescape writes the character of an escape, and returns the number of bytes read after the backslash.
func unescape(to *strings.Builder, text string, escapes bool) int {
	if !escapes {
		to.WriteByte(text[0])
		return 1
	}
	if c, is := plainEscapes[text[0]]; is {
		to.WriteByte(c)
		return 1
	}
	from, digits, base := 1, map[byte]int{'x': 2, 'u': 4, 'U': 8}[text[0]], 16
	if text[0] >= '0' && text[0] <= '7' {
		from, digits, base = 0, 3, 8
	}
	if digits > 0 && len(text) >= from+digits {
		if n, err := strconv.ParseUint(text[from:from+digits], base, 32); err == nil && n > 0 {
			if c := text[0]; c != 'u' && c != 'U' && n < 256 {
				to.WriteByte(byte(n))
				return from + digits
			} else if n <= utf8.MaxRune && c != 'x' && from == 1 {
				to.WriteRune(rune(n))
				return from + digits
			}
		}
	}
	to.WriteByte('\\')
	to.WriteByte(text[0])
	return 1
}
