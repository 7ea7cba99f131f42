// SPDX-License-Identifier: Apache-2.0

package tags

import "strings"

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
