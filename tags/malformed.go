// SPDX-License-Identifier: Apache-2.0

package tags

import "strings"

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
