// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"slices"
	"strings"
	"time"
)

// hashDigits is the length from which a mix of letters and digits counts as a hash; git abbreviates to the same length.
const hashDigits = 7

// Why the general grammar rejects a tag.
const (
	noVersion     = "no version in it"
	wordAndNumber = "a number without a dot after a word"
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

// scanVersion reads a version and its pre-release from start and returns their end. The text must end there or go on
// with a separator.
func (t *Tag) scanVersion(start, limit int) (end int, is bool) {
	text := t.raw[:limit]
	if end = scanISODate(text, start); end > 0 {
		t.version = newSpan(start, end)
		if end < len(text) && text[end] == 'Z' {
			end++
		}
		return end, isPartEnd(text, end)
	}
	t.hasV = start < len(text) && text[start] == 'v'
	if start < len(text) && text[start]|0x20 == 'v' {
		start++
	}
	if end = skipDotted(text, start); end == start {
		return end, false
	}
	t.version = newSpan(start, end)
	if pre, isWord := scanPre(text, end, strings.Contains(t.numbers(), ".")); pre > 0 {
		t.pre, t.isWord, end = newSpan(end, pre), isWord, pre
	}
	return end, isPartEnd(text, end)
}

func skipDigits(text string, i int) int {
	for i < len(text) && isDigit(text[i]) {
		i++
	}
	return i
}

func isPartEnd(text string, i int) bool { return i == len(text) || isSeparator(text[i]) }

func isSeparator(c byte) bool { return c == '-' || c == '_' || c == '.' }

// scanISODate reads 2024-01-15, and 2024-01-15T16-07-38 with a time, from start; it returns 0 for anything else.
func scanISODate(text string, start int) (end int) {
	end = start + len(time.DateOnly)
	if end > len(text) || end < len(text) && isDigit(text[end]) || text[start+4] != '-' {
		return 0
	}
	if _, err := time.Parse(time.DateOnly, text[start:end]); err != nil {
		return 0
	}
	const clock = "T15-04-05"
	if n := end + len(clock); n <= len(text) {
		if _, err := time.Parse(clock, text[end:n]); err == nil {
			return n
		}
	}
	return end
}

// isDate reports whether digits are a year, a month and a day, and at most a time or a counter after them.
func isDate(digits string) bool {
	const longest = len("20240115093000")
	if len(digits) < dateDigits || len(digits) > longest || !isDigits(digits) || digits[:2] != "19" && digits[:2] != "20" {
		return false
	}
	_, err := time.Parse("20060102", digits[:dateDigits])
	return err == nil
}

// readVersion reads a part of the tag that must be a version as a whole. It returns the reason if it is not.
func (t *Tag) readVersion(of span, versions Versions) (reason string) {
	text, start := of.of(t.raw), int(of.start)
	v := vLength(text)
	switch versions {
	case SUSE:
		tag, f := scan(text)
		if f != (fault{}) {
			return f.String()
		}
		t.version, t.rev, t.build = tag.version.shifted(start), tag.rev.shifted(start), tag.build.shifted(start)
		t.hasV, t.reading = tag.hasV, bySUSEPattern
		return ""
	case AnyVersions:
		if end, is := t.scanVersion(start, int(of.end)); !is || end != int(of.end) {
			return "not numbers with dots, or a date: " + text
		}
		return ""
	case Semver:
		numbers, pre, _ := strings.Cut(text[v:], "-")
		if !isSemver(numbers, pre) || strings.HasSuffix(text, "-") {
			return "not MAJOR.MINOR.PATCH: " + text
		}
		if pre != "" {
			t.pre = newSpan(start+v+len(numbers), int(of.end))
		}
		of.end = uint8((start + v + len(numbers)) & 0xff)
	case Numeric:
		if !isDotted(strings.NewReplacer("-", ".", "_", ".").Replace(text[v:])) {
			return "not numbers alone: " + text
		}
	case Calendar:
		if !isCalendar(strings.TrimSuffix(text[v:], "Z")) {
			return "not a date: " + text
		}
		t.isDate = isDigits(text[v:])
		if strings.HasSuffix(text, "Z") {
			of.end--
		}
	}
	t.version, t.hasV = newSpan(start+v, int(of.end)), v == 1
	return ""
}

func (s span) shifted(by int) span {
	if !s.is() {
		return s
	}
	return newSpan(int(s.start)+by, int(s.end)+by)
}

// isSemver checks numbers and a pre-release against https://semver.org, version 2.0.0.
func isSemver(numbers, pre string) bool {
	if end, what := scanDotted(numbers, 0); what != "" || end != len(numbers) || strings.Count(numbers, ".") != 2 {
		return false
	}
	for id := range strings.SplitSeq(pre, ".") {
		if id == "" && pre != "" || strings.Contains(id, "_") || isDigits(id) && len(id) > 1 && id[0] == '0' {
			return false
		}
	}
	return true
}

// isCalendar reports whether text begins with a year of two or four digits and a month. Without dots it must have a
// four-digit year and a month.
func isCalendar(text string) bool {
	if isDigits(text) {
		if len(text) == len("200601") {
			text += "01"
		}
		return isDate(text)
	}
	dotted := strings.NewReplacer("-", ".", "_", ".", "T", ".").Replace(text)
	year, rest := cutNumber(dotted)
	month, _ := cutNumber(rest)
	m := withoutZeros(month)
	return isDotted(dotted) && (len(year) == 4 && year >= "1970" && year < "2200" || len(year) == 2) &&
		len(m) <= 2 && m != "0" && (len(m) == 1 || m <= "12")
}

// A number of digits from which a number without dots is not a version but a year, a date (20240115, 20240115093000), a
// hash without letters (1234567) or a build number. No publisher counts versions that far.
const (
	stampDigits = 4
	exactDigits = 7 // stamps of one kind have the same length
)

// IsStamp reports whether the application version is one number with so many digits that it is a date, a hash or a
// build number if other tags have versions.
func (t Tag) IsStamp() bool {
	return len(t.numbers()) >= stampDigits && isDigits(t.numbers())
}

// isSameKind reports whether two tags agree on which of their numbers are versions and which are dates, hashes or build
// numbers. 13 may move to 14, 2019 to 2022 and 20240115 to 20240301, but not 13 to 20240115, nor 2024-01-15 to
// 2024.1.16, nor 1.2 to 20240115.1. Builds that are dates have the same length.
func isSameKind(a, b Tag) bool {
	firstA, firstB := first(a.numbers()), first(b.numbers())
	return haveSameSeparators(a.numbers(), b.numbers()) && !isOtherKind(a.numbers(), b.numbers()) &&
		(max(len(firstA), len(firstB)) < exactDigits || len(firstA) == len(firstB)) &&
		(!a.rev.is() || !isOtherKind(a.Rev(), b.Rev())) &&
		(a.isSUSE() || !a.build.is() || !b.build.is() || !isOtherKind(first(a.Build()), first(b.Build())))
}

// haveSameSeparators compares the separators between the numbers that both tags have.
func haveSameSeparators(a, b string) bool {
	for a != "" && b != "" {
		numberA, restA := cutNumber(a)
		numberB, restB := cutNumber(b)
		if restA != "" && restB != "" && a[len(numberA)] != b[len(numberB)] {
			return false
		}
		a, b = restA, restB
	}
	return true
}

func first(dotted string) string {
	number, _ := cutNumber(dotted)
	return number
}

// isOtherKind reports whether, of two numbers without dots, one is a stamp and the other is not the same kind of stamp.
func isOtherKind(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	switch {
	case len(b) < stampDigits || !isDigits(b):
		return false
	case len(b) >= exactDigits || !isDigits(a):
		return len(a) != len(b)
	}
	return len(b)-len(a) > 1
}

// isVersionLike reports whether numbers could be a version next to the version of a tag.
func isVersionLike(numbers []string, beside Tag) bool {
	return len(numbers) > 1 || !strings.Contains(beside.numbers(), ".") && !isOtherKind(numbers[0], beside.numbers()) ||
		strings.Contains(beside.numbers(), ".") && len(numbers[0]) < stampDigits
}
