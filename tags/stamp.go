// SPDX-License-Identifier: Apache-2.0

package tags

import "strings"

// Digits alone that are no version: a year, a date (20240115, 20240115093000), a hash that happens
// to have no letter (1234567), the number of a build. No publisher counts versions that far.
const (
	stampDigits = 4
	exactDigits = 7 // stamps of one kind have one length
)

// IsStamp reports whether the application version of a tag is digits alone, and so many that they are
// a date, a hash or the number of a build wherever the others are versions.
func (t Tag) IsStamp() bool {
	return len(t.numbers()) >= stampDigits && !strings.Contains(t.numbers(), ".")
}

// isSameKind reports whether no number of two tags is a date, a hash or the number of a build where
// the other has a version, or another kind of these. 13 may go to 14, 2019 to 2022 and 20240115 to
// 20240301; 13 never to 20240115.
func isSameKind(a, b Tag) bool {
	return !isOtherKind(a.numbers(), b.numbers()) && (a.revStart == 0 || !isOtherKind(a.Rev(), b.Rev()))
}

// isOtherKind compares digits alone: one is a stamp, and the other is none of its kind.
func isOtherKind(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	switch {
	case len(b) < stampDigits || strings.Contains(b, "."):
		return false
	case len(b) >= exactDigits || strings.Contains(a, "."):
		return len(a) != len(b)
	}
	return len(b)-len(a) > 1
}

// isVersionLike reports whether numbers that a person reads could be a version beside a tag.
func isVersionLike(numbers []string, beside Tag) bool {
	return len(numbers) > 1 || !strings.Contains(beside.numbers(), ".") && !isOtherKind(numbers[0], beside.numbers()) ||
		strings.Contains(beside.numbers(), ".") && len(numbers[0]) < stampDigits
}
