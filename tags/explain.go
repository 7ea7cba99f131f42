// SPDX-License-Identifier: Apache-2.0

package tags

import "strings"

// dateDigits is the length of a date without separators, 20260909. A build of
// that many digits and no dot is not OBS's.
const dateDigits = 8

// explain decides whether a text that no grammar took is of SUSE's scheme, and
// says why it is malformed if so. The rule stands in the package comment.
func explain(text string, sp spelling, f fault) (reason string, ours bool) {
	head := numberLength(text)
	if head == 0 {
		return "", false
	}
	rest := strings.ToLower(text[head:])
	switch {
	case hasRevMark(rest):
		if _, lower := scan(strings.ToLower(text), sp); lower == (fault{}) {
			return "upper case", true
		}
		return f.String(), true
	case sp.build == coreBuild && isBuildAlone(rest):
		return "build without revision", true
	case sp.rev == "-" && isDashed(rest):
		return f.String(), true
	}
	return "", false
}

// numberLength gives the length of the dotted number, right or wrong, at the
// start of text, its v included; 0 if there is none.
func numberLength(text string) int {
	v := vLength(strings.ToLower(text[:1]))
	if v == len(text) || !isDigit(text[v]) {
		return 0
	}
	return v + digitsAndDots(text[v:])
}

// hasRevMark finds "-rev" that is not the beginning of a longer word.
func hasRevMark(rest string) bool {
	for {
		_, after, found := strings.Cut(rest, coreRev)
		if !found || after == "" || !isLetter(after[0]) {
			return found
		}
		rest = after
	}
}

func isBuildAlone(rest string) bool {
	build, found := strings.CutPrefix(rest, coreBuild)
	if !found || digitsAndDots(build) < len(build) {
		return false
	}
	return len(build) < dateDigits || strings.Contains(build, ".")
}

// isDashed recognizes the scheme where a configuration names a dialect without
// words: nothing but numbers, dots and dashes.
func isDashed(rest string) bool {
	return strings.HasPrefix(rest, "-") && strings.Trim(rest, "-.0123456789") == ""
}

func digitsAndDots(text string) int {
	return len(text) - len(strings.TrimLeft(text, ".0123456789"))
}
