// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"strings"
	"time"
)

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
	if end = skipDigits(text, start); end == start {
		return end, false
	}
	for end+1 < len(text) && text[end] == '.' && isDigit(text[end+1]) {
		end = skipDigits(text, end+1)
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
