// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Compare orders tags. It returns a negative number if a is lower (older by name), a positive number if it is higher,
// and 0 only for the same text.
//
// The keys are the application version, the pre-release, the revision and the build, each compared number by number,
// then the text itself. A missing number or part sorts below any present one: 3.2 < 3.2.0 < 3.2.0-rev1 <
// 3.2.0-rev1-build1.1, and the zero tag is the lowest. Only a pre-release sorts below its release. The v and the name
// count only as part of the text. Compare is a total order over the tags of a scheme and does not allocate.
//
// It orders names. OBS's RELEASE may fall when a base or project changes, so a higher tag need not be a later build.
func Compare(a, b Tag) int {
	if order, _ := compareDotted(a.numbers(), b.numbers()); order != 0 {
		return order
	}
	if a.pre.is() || b.pre.is() {
		if order := comparePre(a.pre.of(a.raw), b.pre.of(b.raw)); order != 0 {
			return order
		}
	}
	if order, _ := compareDotted(a.Rev(), b.Rev()); order != 0 {
		return order
	}
	if order, _ := compareDotted(a.Build(), b.Build()); order != 0 {
		return order
	}
	return strings.Compare(a.raw, b.raw)
}

// compareDotted compares dotted numbers and returns the index of the first number that differs.
func compareDotted(a, b string) (order, index int) {
	for a != "" || b != "" {
		var partA, partB string
		partA, a = cutNumber(a)
		partB, b = cutNumber(b)
		if order = compareNumber(partA, partB); order != 0 {
			return order, index
		}
		index++
	}
	return 0, index
}

// compareNumber compares decimal numbers of any size: without leading zeros the longer one is larger. "", a missing
// number, is the lowest.
func compareNumber(a, b string) int {
	if a != "" && a[0] == '0' || b != "" && b[0] == '0' {
		a, b = withoutZeros(a), withoutZeros(b)
	}
	if order := cmp.Compare(len(a), len(b)); order != 0 {
		return order
	}
	return strings.Compare(a, b)
}

// withoutZeros removes leading zeros but keeps one digit.
func withoutZeros(number string) string {
	for len(number) > 1 && number[0] == '0' {
		number = number[1:]
	}
	return number
}

// cutNumber cuts off the first number and the separator after it.
func cutNumber(dotted string) (number, rest string) {
	for i := range len(dotted) {
		if !isDigit(dotted[i]) {
			return dotted[:i], dotted[i+1:]
		}
	}
	return dotted, ""
}

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

// gap is a reason why one tag cannot follow another under any policy. noGap means that it can.
type gap int

const (
	noGap gap = iota
	gapV
	gapName
	gapForm
	gapKind
	gapPrecision
	gapPre
)

// gapBetween returns why to is not in line with from.
//
// Two tags are in line if they have the same name and form and, without a revision of SUSE's scheme, the same count of
// numbers: 1.28 floats over the patch releases of 1.28, so its successor is 1.29 and not 1.29.0, which never moves to
// another version. A tag with a revision of SUSE's scheme names a whole application version, however many numbers that
// has: 3.2-rev1 and 3.2.1-rev1 are in line. Digits alone that are a date, a hash or a build number (see [Tag.IsStamp])
// are in line only with their kind. A pre-release follows a release only if the scheme allows pre-releases.
func gapBetween(from, to Tag) gap {
	switch {
	case from.IsZero() || to.IsZero():
		return gapName
	case from.hasV != to.hasV:
		return gapV
	case from.line() != to.line():
		return gapForm
	case !sameName(from, to):
		return gapName
	case !isSameKind(from, to):
		return gapKind
	case from.line() <= Short && countNumbers(from.numbers()) != countNumbers(to.numbers()):
		return gapPrecision
	case to.pre.is() && !from.pre.is() && !from.wantsPre:
		return gapPre
	}
	return noGap
}

// line is the form, except that short and single tags share one: 1.28.0-rc.1 is followed by 1.28.0.
func (t Tag) line() Form {
	if f := t.Form(); f != Single {
		return f
	}
	return Short
}

func countNumbers(dotted string) (count int) {
	for dotted != "" {
		_, dotted = cutNumber(dotted)
		count++
	}
	return count
}

// InLine reports whether an image that follows from may move to the tag to by its spelling: same name, form, precision
// and kind, and not a pre-release unless from is one or the scheme allows them. It does not compare versions.
func InLine(from, to Tag) bool { return gapBetween(from, to) == noGap }

// WhyNot returns, for a person, why a tag is not in line with another one; "" if it is.
func WhyNot(from, to Tag) string {
	switch gapBetween(from, to) {
	case noGap:
		return ""
	case gapV:
		if to.hasV {
			return fmt.Sprintf("spelled with a v, and %s is not", from)
		}
		return fmt.Sprintf("spelled without a v, and %s has one", from)
	case gapForm:
		return fmt.Sprintf("%s tag, and %s is %s", to.Form(), from, from.Form())
	case gapKind:
		return fmt.Sprintf("a date, a hash or the number of a build, where %s has a number of another kind", from)
	case gapPrecision:
		return fmt.Sprintf("%d numbers, and %s has %d", countNumbers(to.numbers()), from, countNumbers(from.numbers()))
	case gapPre:
		return fmt.Sprintf("a pre-release, but %s is not one: prereleases: true offers it", from)
	}
	return fmt.Sprintf("another name: %s, and %s is %s", to.Name(), from, from.Name())
}

// FloatsFor returns a function that reports whether an image that follows the pre-release from must not move to a tag,
// because that floats in a list of tags: 7.2-rc3 names one build, and 7.2 beside 7.2.0 names others later. A list
// without 7.2.0 has 7.2 as the release.
func FloatsFor(from Tag, list []Tag) (isFloating func(Tag) bool) {
	if !from.pre.is() {
		return func(Tag) bool { return false }
	}
	under := map[string][]Tag{} // by the version and revision of the floating tags: a list may be long
	for _, t := range list {
		app := t.App()
		if t.isSUSE() { // only SUSE's builds are under a tag of their own version
			under[app+" "] = append(under[app+" "], t)
			if t.rev.is() {
				under[app+" "+t.Rev()] = append(under[app+" "+t.Rev()], t)
			}
		}
		if t.hasMarks() {
			continue
		}
		for end := strings.LastIndexByte(app, '.'); end > 0; end = strings.LastIndexByte(app[:end], '.') {
			under[app[:end]+" "] = append(under[app[:end]+" "], t)
		}
	}
	return func(to Tag) bool {
		if to.pre.is() || to.Form() == Long || to.hasMarks() && !to.isSUSE() {
			return false // no tag is under it
		}
		return slices.ContainsFunc(under[to.App()+" "+to.Rev()], func(t Tag) bool { return t.IsUnder(to) })
	}
}

// Newest returns the highest of tags that an image following follow may move to: in line with it and a change of at
// most largest. The result is never lower than follow. It may be follow itself if tags contains it; with largest [Same]
// no other result is possible. It returns false if no tag fits.
//
// Precision keeps BCI's build number 15.5.36.5.67 from following 15.5. Long tags whose application versions have
// different counts of numbers are compared as they are.
func Newest(tags []Tag, follow Tag, largest Change) (Tag, bool) {
	var newest Tag
	isFloating := FloatsFor(follow, tags)
	for _, tag := range tags {
		if !InLine(follow, tag) || isFloating(tag) {
			continue
		}
		if change := ChangeBetween(follow, tag); change < Same || change > largest {
			continue
		}
		if newest.IsZero() || Compare(tag, newest) > 0 {
			newest = tag
		}
	}
	return newest, !newest.IsZero()
}

// Exceeds reports whether t is above limit. Only the parts that limit has are compared: 4.1.9-rev3 does not exceed 4.1,
// and no build of 4.1.2-rev1 exceeds 4.1.2-rev1. A part that t lacks does not exceed. The v does not count; the zero
// limit allows every tag.
func (t Tag) Exceeds(limit Tag) bool {
	if t.IsZero() || limit.IsZero() {
		return false
	}
	if order := compareAsFarAs(t.numbers(), limit.numbers()); order != 0 {
		return order > 0
	}
	if !t.rev.is() || !limit.rev.is() {
		return false
	}
	if order := compareAsFarAs(t.Rev(), limit.Rev()); order != 0 {
		return order > 0
	}
	return compareAsFarAs(t.Build(), limit.Build()) > 0
}

// compareAsFarAs compares dotted numbers up to the length of limit.
func compareAsFarAs(dotted, limit string) int {
	for limit != "" {
		var part, most string
		part, dotted = cutNumber(dotted)
		most, limit = cutNumber(limit)
		if order := compareNumber(part, most); order != 0 {
			return order
		}
	}
	return 0
}

// IsUnder reports whether a floating tag names t. SUSE's short and intermediate tags name builds of one application
// version. In other schemes v1.34 and v1 name v1.34.2, and 1.34-alpine names 1.34.2-alpine but neither 1.34.2 nor
// 1.34.2-debian.
func (t Tag) IsUnder(floating Tag) bool {
	if t.line() <= Short && floating.line() <= Short {
		return !t.IsZero() && sameName(t, floating) && !t.hasMarks() && !floating.hasMarks() &&
			strings.HasPrefix(t.numbers(), floating.numbers()+".")
	}
	return floating.Form() != Long && t.hasV == floating.hasV && t.IsBuildOf(floating)
}

// Series returns the version and the name, which all builds of one application version have in common.
func (t Tag) Series() string { return t.App() + " " + t.pre.of(t.raw) + " " + t.Name() }

// hasMarks reports whether the tag has more than a version.
func (t Tag) hasMarks() bool { return t.pre.is() || t.rev.is() || t.build.is() }

// Floating returns the floating tags that name t, the most specific first. See [Tag.IsUnder].
func (t Tag) Floating() []string {
	if intermediate, ok := t.Intermediate(); ok {
		return []string{intermediate.String(), intermediate.Short().String()}
	}
	if t.hasMarks() || !isDotted(t.numbers()) {
		return nil
	}
	var out []string
	for end := strings.LastIndexByte(t.numbers(), '.'); end > 0; end = strings.LastIndexByte(t.numbers()[:end], '.') {
		out = append(out, t.raw[:int(t.version.start)+end]+t.raw[t.version.end:])
	}
	return out
}
