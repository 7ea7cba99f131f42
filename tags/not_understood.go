// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// NotUnderstood is a tag that no policy can offer although a person would call it newer than the followed tag and than
// every tag that can follow it.
type NotUnderstood struct {
	Tag    string `json:"tag"`
	Reason string `json:"reason"` // "empty build"
	// Pattern is the `tags.pattern` that would order it; empty if none is known.
	Pattern string `json:"pattern,omitempty"`
}

// String returns the tag, why it is not understood, and the setting that would order it.
func (n NotUnderstood) String() string {
	if n.Pattern == "" {
		return fmt.Sprintf("%s (%s)", n.Tag, n.Reason)
	}
	return fmt.Sprintf("%s (%s; tags.pattern '%s' orders it)", n.Tag, n.Reason, n.Pattern)
}

// lenient matches a version as people write it: a dotted number, an optional v or word before it, and a rest.
var lenient = regexp.MustCompile(
	`^([rR]|[vV][-_.]?|(?i:release|version|rel|ver|stable)[-_.]?[vV]?)?` +
		`([0-9]+(?:\.[0-9]+)*)([-_+.a-zA-Z].*)?$`)

// preRelease matches the suffix of a pre-release.
var preRelease = regexp.MustCompile(
	`(?i)^([-_.]?(alpha|beta|rc|pre|preview|dev|snapshot|nightly|canary|test|ea|m[0-9])|[ab][0-9])`)

// noNumbers matches a number without a dot that letters touch: 1a2b3c4 is a hash, r1234 a revision.
var noNumbers = regexp.MustCompile(`^([rR][0-9]+|[vVrR]?[0-9]+[a-zA-Z].*)$`)

// lenientRev matches a revision, valid or not.
var lenientRev = regexp.MustCompile(`(?i)^-rev\.?([0-9]+)`)

// read is a tag as a person would read it.
type read struct {
	text, prefix, suffix string
	numbers              []string // without leading zeros
	rev                  string
	tag                  Tag // zero: the scheme does not accept it
}

func readLeniently(text string) (read, bool) {
	m := lenient.FindStringSubmatch(text)
	if m == nil || len(text) > maxLength || noNumbers.MatchString(text) {
		return read{}, false
	}
	r := read{text: text, prefix: m[1], suffix: m[3]}
	for n := range strings.SplitSeq(m[2], ".") {
		r.numbers = append(r.numbers, withoutZeros(n))
	}
	if rev := lenientRev.FindStringSubmatch(r.suffix); rev != nil {
		r.rev = withoutZeros(rev[1])
	}
	return r, true
}

// isAbove compares the numbers that both tags have: 15.5.36 is not above 15.5. Of two tags with one version, the
// numbers of their suffixes are compared.
func (r read) isAbove(other read) bool {
	for i := range min(len(r.numbers), len(other.numbers)) {
		if order := compareNumber(r.numbers[i], other.numbers[i]); order != 0 {
			return order > 0
		}
	}
	if other.tag.pre.is() && !r.tag.IsZero() && !r.tag.pre.is() && len(r.numbers) > len(other.numbers) {
		return true // 7.2.0 is the release of 7.2-rc3
	}
	return isRebuildOf(other.tag, r.tag) ||
		len(r.numbers) == len(other.numbers) && r.rev != "" && other.rev != "" && compareNumber(r.rev, other.rev) > 0
}

// FindNotUnderstood returns the tags of a list that a person would call newer than follow but whose spelling keeps them
// from following it; at most `most`. The nearest are first, tags that differ from follow in numbers alone before
// others. It leaves out tags that are not above the highest successor, unless only the suffix of follow has a lower
// number, and pre-releases, dates and hashes.
func FindNotUnderstood(list []string, follow Tag, s Scheme, most int) []NotUnderstood {
	known, _ := readLeniently(follow.String())
	known.tag = follow
	var found []read
	var parsed []Tag
	if follow.pre.is() {
		for _, text := range list {
			if t, err := s.Parse(text); err == nil {
				parsed = append(parsed, t)
			}
		}
	}
	isFloating := FloatsFor(follow, parsed)
	for _, text := range list {
		t, err := s.Parse(text)
		r, ok := readLeniently(text)
		r.text, r.tag = text, t
		switch {
		case err == nil && InLine(follow, t):
			if ok && r.isAbove(known) && !isFloating(t) {
				known = r
			}
		case ok && r.isVersionBeside(follow), isRebuildOf(follow, t):
			found = append(found, r)
		}
	}
	found = slices.DeleteFunc(found, func(r read) bool { return !isRebuildOf(follow, r.tag) && !r.isAbove(known) })
	slices.SortStableFunc(found, func(a, b read) int { return cmp.Or(compareNames(follow, a, b), compareRead(a, b)) })
	var out []NotUnderstood
	for _, r := range found[:min(len(found), most)] {
		out = append(out, NotUnderstood{r.text, r.reason(follow, s), s.patternBetween(follow.String(), r.text)})
	}
	return out
}

// isVersionBeside reports whether a tag has a version of follow's kind that is no pre-release.
func (r read) isVersionBeside(follow Tag) bool {
	return isVersionLike(r.numbers, follow) && (r.rev == "" || !isOtherKind(r.rev, follow.Rev())) &&
		!preRelease.MatchString(r.suffix) && (r.tag.IsZero() || gapBetween(follow, r.tag) != gapPre) && ociFault(r.text) == ""
}

// compareNames puts a tag that differs from follow in numbers alone before one with another name. The v does not count.
func compareNames(follow Tag, a, b read) int {
	words := func(text string) string { return strings.TrimPrefix(number.ReplaceAllString(text, "#"), "v") }
	name := words(follow.String())
	switch isA, isB := words(a.text) == name, words(b.text) == name; {
	case isA == isB:
		return 0
	case isA:
		return -1
	}
	return 1
}

// isRebuildOf reports whether two tags that no policy compares have the same text except for numbers after their
// version, and the first of these that differs is higher in to. The number must not be another kind: a date where the
// other is a counter, or part of a hash. A hotfix of a tag is above it, too.
func isRebuildOf(from, to Tag) bool {
	if isHotfixOf(from, to) {
		return true
	}
	if from.reading >= byPattern || to.IsZero() || to.reading >= byPattern || from.versionEnd() != to.versionEnd() ||
		from.raw[:from.versionEnd()] != to.raw[:to.versionEnd()] {
		return false
	}
	partsFrom, partsTo := suffixParts(from), suffixParts(to)
	if len(partsFrom) != len(partsTo) {
		return false
	}
	order := 0
	for n, from := range partsFrom {
		of, ok := compareParts(partsTo[n], from)
		if !ok {
			return false
		}
		order = cmp.Or(order, of)
	}
	return order > 0
}

// compareParts compares two parts of suffixes by the first number that differs; false if their words differ, or one of
// their numbers is of another kind.
func compareParts(a, b string) (order int, ok bool) {
	if number.ReplaceAllString(a, "#") != number.ReplaceAllString(b, "#") || a != b && (isHash(a) || isHash(b)) {
		return 0, false
	}
	numbersB := number.FindAllString(b, -1)
	for i, x := range number.FindAllString(a, -1) {
		y := numbersB[i]
		if isOtherKind(y, x) || x != y && len(x) >= hashDigits && !isDate(x) {
			return 0, false
		}
		order = cmp.Or(order, compareNumber(x, y))
	}
	return order, true
}

// isHotfixOf reports whether a tag is another one with a word at its end that names a later build, and a number.
func isHotfixOf(from, to Tag) bool {
	rest, is := strings.CutPrefix(to.raw, from.raw)
	if !is || !to.rev.is() || int(to.rev.end) != len(to.raw) || len(rest) < 2 || !isSeparator(rest[0]) {
		return false
	}
	word := strings.TrimRight(rest[1:], "-_.0123456789")
	return slices.Contains([]string{"hf", "hotfix", "patch", "rebuild", "security", "update"}, word)
}

// suffixParts returns the text after the version, split at the separators.
func suffixParts(t Tag) []string {
	return strings.FieldsFunc(t.raw[t.versionEnd():], func(r rune) bool { return r < 128 && isSeparator(byte(r)) })
}

// isHash reports whether a part of a suffix may be a hash, which people shorten to five digits and more.
func isHash(part string) bool {
	const shortest = 5
	return len(part) >= shortest && strings.Trim(part, "0123456789abcdefABCDEF") == "" && !isDigits(part)
}

// Unread returns the tags of a list that no grammar accepts but in which a person may read a dotted version; the
// highest first, at most `most`.
func Unread(list []string, s Scheme, most int) []string {
	var found []read
	for _, text := range list {
		r, ok := readLeniently(text)
		if _, err := s.Parse(text); ok && err != nil && len(r.numbers) > 1 && !preRelease.MatchString(r.suffix) {
			found = append(found, r)
		}
	}
	slices.SortStableFunc(found, func(a, b read) int { return compareRead(b, a) })
	var out []string
	for _, r := range found[:min(len(found), most)] {
		out = append(out, r.text)
	}
	return out
}

// compareRead compares tags by their numbers, those after the version last.
func compareRead(a, b read) int {
	for i := range max(len(a.numbers), len(b.numbers)) {
		if order := compareNumber(at(a.numbers, i), at(b.numbers, i)); order != 0 {
			return order
		}
	}
	return cmp.Or(compareNumber(a.rev, b.rev), compareNatural(a.text, b.text))
}

// compareNatural compares texts, and numbers in them by their value.
func compareNatural(a, b string) int {
	for x, y := a, b; x != "" && y != ""; {
		n, m := skipDigits(x, 0), skipDigits(y, 0)
		if n > 0 && m > 0 {
			if order := compareNumber(x[:n], y[:m]); order != 0 {
				return order
			}
			x, y = x[n:], y[m:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// at returns the number at i, or "", the lowest, if there is none.
func at(numbers []string, i int) string {
	if i < len(numbers) {
		return numbers[i]
	}
	return ""
}

// reason returns why a tag cannot follow the followed one.
func (r read) reason(follow Tag, s Scheme) string {
	t, err := s.Parse(r.text)
	switch reason := Reason(err); {
	case err == nil:
		return WhyNot(follow, t)
	case reason == noVersion, reason == wordAndNumber:
		return r.unrecognized()
	default:
		return reason
	}
}

// unrecognized returns why the general grammar rejects a tag in which a person reads a version.
func (r read) unrecognized() string {
	if r.suffix != "" {
		return fmt.Sprintf("%q after the version", r.suffix)
	}
	return fmt.Sprintf("%q before the version", r.prefix)
}
