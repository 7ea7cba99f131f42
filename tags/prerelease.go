// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"cmp"
	"slices"
	"strings"
)

// preWords are the names of pre-releases. preVariants are the ones that publishers also use to name a variant, for
// example one with development tools.
var (
	preWords    = []string{"alpha", "beta", "rc", "cr", "pre", "preview", "milestone"}
	preVariants = []string{"dev", "snapshot", "nightly", "canary", "test", "ea"}
)

// scanPre reads a pre-release after a version, such as -rc.1, rc1, .beta3 or -dev, and returns its end; 0 if there is
// none. dotted says that the version has a dot, so that letters next to it cannot be part of a hash. isWord reports one
// of preVariants without a number.
func scanPre(text string, from int, dotted bool) (end int, isWord bool) {
	start := from
	if start < len(text) && isSeparator(text[start]) {
		start++
	}
	end = start
	for end < len(text) && isLetter(text[end]) {
		end++
	}
	word, direct := strings.ToLower(text[start:end]), start == from
	isWord = slices.Contains(preVariants, word)
	needsNumber := word == "m" && !direct || (word == "a" || word == "b") && direct
	switch {
	case !isWord && !needsNumber && !slices.Contains(preWords, word):
		return 0, false
	case direct && !dotted && word != "alpha" && word != "beta" && word != "rc":
		return 0, false
	}
	digits := end
	if end < len(text) && isSeparator(text[end]) {
		digits++
	}
	if n := skipDotted(text, digits); n > digits && isPartEnd(text, n) {
		return n, false
	}
	if needsNumber || !isPartEnd(text, end) {
		return 0, false
	}
	return end, isWord
}

func skipDotted(text string, i int) int {
	end := skipDigits(text, i)
	for end > i && end+1 < len(text) && text[end] == '.' && isDigit(text[end+1]) {
		end = skipDigits(text, end+1)
	}
	return end
}

// comparePre compares pre-releases by semver's rules: a release is above any pre-release, a number is below a word, and
// a longer pre-release is above its own prefix. Unlike in semver, a number next to a word counts as a number, so rc10
// is above rc9.
func comparePre(a, b string) int {
	if a == "" || b == "" {
		return cmp.Compare(len(b), len(a))
	}
	for a != "" || b != "" {
		var x, y string
		x, a = cutIdentifier(a)
		y, b = cutIdentifier(b)
		if order := compareIdentifier(x, y); order != 0 {
			return order
		}
	}
	return 0
}

// cutIdentifier cuts off the first word or number.
func cutIdentifier(text string) (first, rest string) {
	for text != "" && isSeparator(text[0]) {
		text = text[1:]
	}
	n := skipDigits(text, 0)
	if n == 0 {
		for n < len(text) && !isDigit(text[n]) && !isSeparator(text[n]) {
			n++
		}
	}
	return text[:n], text[n:]
}

// compareIdentifier compares identifiers: an empty one is below a number, and a number is below a word.
func compareIdentifier(a, b string) int {
	kind := func(text string) int {
		switch {
		case text == "":
			return 0
		case isDigit(text[0]):
			return 1
		}
		return 2
	}
	if order := cmp.Compare(kind(a), kind(b)); order != 0 || a == "" {
		return order
	}
	if isDigit(a[0]) {
		return compareNumber(a, b)
	}
	return compareFolded(a, b)
}

// compareFolded compares words case-insensitively.
func compareFolded(a, b string) int {
	for i := range min(len(a), len(b)) {
		if order := cmp.Compare(a[i]|0x20, b[i]|0x20); order != 0 {
			return order
		}
	}
	return cmp.Compare(len(a), len(b))
}
