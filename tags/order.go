// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"cmp"
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
	if order := compareReleases(a, b); order != 0 {
		return order
	}
	return strings.Compare(a.raw, b.raw)
}

// compareReleases is Compare without its last key.
func compareReleases(a, b Tag) int {
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
	order, _ := compareDotted(a.Build(), b.Build())
	return order
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
