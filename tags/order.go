// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"cmp"
	"strings"
)

// Compare orders tags: negative if a is lower (older by name), positive if it
// is higher, 0 only for the same text.
//
// The keys are the application version, the revision and the build, each
// compared number by number, then the text itself. A missing number or part
// sorts below any present one: 3.2 < 3.2.0 < 3.2.0-rev1 < 3.2.0-rev1-build1.1,
// and the zero tag below all. The v has no rank, except through the text. It
// is a total order over tags of all forms and dialects, and allocates nothing.
//
// It is the order of names. OBS's RELEASE may fall back when a base or project
// changes, so a higher tag need not be the later build.
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
	if order := compareNumber(a.Rev(), b.Rev()); order != 0 {
		return order
	}
	order, _ := compareDotted(a.Build(), b.Build())
	return order
}

// compareDotted compares dotted numbers and gives the index of the first
// component that differs.
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

// compareNumber compares decimal numbers of any size. The grammar allows no
// leading zeros, so the longer one is the larger; "", the missing one, is the
// lowest.
func compareNumber(a, b string) int {
	if order := cmp.Compare(len(a), len(b)); order != 0 {
		return order
	}
	return strings.Compare(a, b)
}

func cutNumber(dotted string) (number, rest string) {
	for i := range len(dotted) {
		if dotted[i] == '.' {
			return dotted[:i], dotted[i+1:]
		}
	}
	return dotted, ""
}
