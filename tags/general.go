// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"slices"
	"strings"
)

// hashDigits is the length from which a mix of letters and digits counts as a hash; git abbreviates to the same length.
const hashDigits = 7

// Why the general grammar rejects a tag.
const (
	noVersion     = "no version in it"
	wordAndNumber = "a number without a dot behind a word"
	emptyPart     = "an empty part"
	holdsHash     = "a hash in it, which has no order"
	longNumber    = "a number of 7 digits or more that is no date, as a hash or a build may have"
)

// readGeneral reads prefix, version, pre-release and suffix. The rest is the tag's name: see [Tag.Name].
func readGeneral(text string) (Tag, string) {
	tag := Tag{raw: text, reading: byGeneral}
	end, reason := tag.findVersion()
	if reason != "" {
		return Tag{}, reason
	}
	if reason = tag.readSuffix(end); reason != "" {
		return Tag{}, reason
	}
	return tag, ""
}

// findVersion finds the first part that is a version and returns its end. At the start of the tag a number is enough.
// After a word it needs a dot or must be a date, because jdk-17 and pr-17 look the same.
func (t *Tag) findVersion() (end int, reason string) {
	reason = noVersion
	for start := 0; start >= 0; start = nextPart(t.raw, start) {
		if !beginsVersion(t.raw[start:]) {
			if part := t.raw[start:partEnd(t.raw, start)]; isUnordered(part) != "" {
				reason = isUnordered(part)
			}
			continue
		}
		end, is := t.scanVersion(start, len(t.raw))
		switch {
		case is && (start == 0 || strings.ContainsAny(t.numbers(), ".-") || isDate(t.numbers())):
			return end, unorderedPart(t.raw[:start])
		case is && reason == noVersion:
			reason = wordAndNumber
		case is:
		case isUnordered(t.raw[start:partEnd(t.raw, start)]) != "":
			reason = isUnordered(t.raw[start:partEnd(t.raw, start)])
		}
		if t.version, t.pre, t.hasV, t.isWord = (span{}), (span{}), false, false; start == 0 {
			return 0, reason
		}
	}
	return 0, reason
}

// beginsVersion reports whether text starts with a digit, or with v and a digit.
func beginsVersion(text string) bool {
	return isDigit(text[0]) || text[0]|0x20 == 'v' && len(text) > 1 && isDigit(text[1])
}

// nextPart returns the start of the part after the one at start, or -1. A dot ends a word, as in RELEASE.2024-01-15,
// but not a number.
func nextPart(text string, start int) int {
	for i := start; i < len(text)-1; i++ {
		switch {
		case text[i] == '-', text[i] == '_', text[i] == '.' && isLetters(text[start:i]):
			return i + 1
		}
	}
	return -1
}

// partEnd returns the end of the part that begins at start, dots included.
func partEnd(text string, start int) int {
	if n := strings.IndexAny(text[start:], "-_"); n >= 0 {
		return start + n
	}
	return len(text)
}

// readSuffix reads the text after the version: the marks of a revision and of a build, and the name.
func (t *Tag) readSuffix(from int) (reason string) {
	for i := from; i < len(t.raw); {
		start := i + 1
		end := partEnd(t.raw, min(start, len(t.raw)))
		part := t.raw[start:end]
		switch date := scanISODate(t.raw, start); {
		case part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".") || strings.Contains(part, ".."):
			return emptyPart
		case date > 0 && !t.build.is():
			t.build, end = newSpan(start, date), date
		case t.readMark(start, part), t.readNumber(start, part, i == from && t.isAlone(i, end)):
		case t.readMarkAndNumber(start, end):
			end = partEnd(t.raw, end+1)
		case unorderedPart(part) != "":
			return unorderedPart(part)
		}
		i = end
	}
	return ""
}

// The marks of revisions and builds, each followed by a number. revWords may have a separator before it. No mark is a
// word that also names another software or a base with its version, such as alpine3, ubi9, pg16, jdk21 or k8s1.30.
var (
	revMarks   = [...]string{"rke2r", "k3s", "hardened", "rancher", "r", "p"}
	revWords   = [...]string{"flannel", "gke", "hf", "hotfix", "patch", "rebuild", "security", "update", "vmware"}
	buildMarks = [...]string{"build", "ls"}
)

// readMark reads a part such as rke2r1, gke.5 or build20250910.
func (t *Tag) readMark(start int, part string) bool {
	for _, mark := range revMarks {
		if number, is := strings.CutPrefix(part, mark); is && t.readRev(number, start+len(part)) {
			return true
		}
	}
	for _, mark := range revWords {
		if number, is := strings.CutPrefix(part, mark); is && t.readRev(strings.TrimPrefix(number, "."), start+len(part)) {
			return true
		}
	}
	for _, mark := range buildMarks {
		if number, is := strings.CutPrefix(part, mark); is && isDotted(number) && !t.build.is() {
			t.build = newSpan(start+len(mark), start+len(part))
			return true
		}
	}
	return false
}

// readMarkAndNumber reads two parts, such as hotfix-1; the first one ends at end.
func (t *Tag) readMarkAndNumber(start, end int) bool {
	if end == len(t.raw) || !slices.Contains(revWords[:], t.raw[start:end]) {
		return false
	}
	last := partEnd(t.raw, end+1)
	return t.readRev(t.raw[end+1:last], last)
}

// readRev reads a number that ends at end as the revision.
func (t *Tag) readRev(number string, end int) bool {
	if t.rev.is() || !isDigits(number) || len(number) >= hashDigits {
		return false
	}
	t.rev = newSpan(end-len(number), end)
	return true
}

// isAlone reports whether no other number is next to the part that ends at end, with its separator at i: it ends the
// tag, or a name follows a version with dots and _, as in 17.0.12_7-jre, or a version of three numbers and -, as in
// 7.9.1-2-ubi8.
func (t *Tag) isAlone(i, end int) bool {
	if end == len(t.raw) {
		return true
	}
	dots := strings.Count(t.numbers(), ".")
	return end+1 < len(t.raw) && (t.raw[i] == '_' && dots > 0 && !isDigit(t.raw[end+1]) ||
		dots > 1 && isDigits(t.raw[i+1:end]) && isLetter(t.raw[end+1]))
}

// readNumber reads a part of digits: a date is a build; a number alone after the version is a revision.
func (t *Tag) readNumber(start int, part string, alone bool) bool {
	first, _, _ := strings.Cut(part, ".")
	switch {
	case !isDotted(part):
		return false
	case isDate(first) && !t.build.is():
		t.build = newSpan(start, start+len(part))
	case alone && len(first) < hashDigits:
		t.rev = newSpan(start, start+len(part))
	default:
		return false
	}
	return true
}

// unorderedPart returns why a part of a tag prevents an order; "" for a name.
func unorderedPart(text string) string {
	for text != "" {
		n := strings.IndexAny(text, "-_.")
		if n < 0 {
			n = len(text)
		}
		if reason := isUnordered(text[:n]); reason != "" {
			return reason
		}
		text = text[min(n+1, len(text)):]
	}
	return ""
}

// isUnordered returns why a part without dots prevents an order: it may be a hash. git describe puts a g before it.
func isUnordered(part string) string {
	part, _, _ = strings.Cut(strings.TrimPrefix(part, "g"), ".")
	if len(part) < hashDigits || isDate(part) {
		return ""
	}
	digits, letters := 0, 0
	for i := range len(part) {
		switch c := part[i]; {
		case isDigit(c):
			digits++
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			letters++
		default:
			return ""
		}
	}
	switch {
	case letters == 0:
		return longNumber
	case digits > 0:
		return holdsHash
	}
	return ""
}

func isLetters(text string) bool {
	for i := range len(text) {
		if !isLetter(text[i]) {
			return false
		}
	}
	return text != ""
}

func isDigits(text string) bool {
	for i := range len(text) {
		if !isDigit(text[i]) {
			return false
		}
	}
	return text != ""
}

// isDotted reports whether text consists of numbers separated by dots.
func isDotted(text string) bool {
	for i := range len(text) {
		if !isDigit(text[i]) && (text[i] != '.' || i == 0 || text[i-1] == '.') {
			return false
		}
	}
	return text != "" && text[len(text)-1] != '.'
}
