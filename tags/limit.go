// SPDX-License-Identifier: Apache-2.0

package tags

// Exceeds reports whether t lies above limit, which is read only as far as it is
// written: 4.1.9-rev3 does not exceed 4.1, and no build of 4.1.2-rev1 exceeds
// 4.1.2-rev1. What t does not tell cannot exceed. The v has no part in it; the
// zero limit is none.
func (t Tag) Exceeds(limit Tag) bool {
	if t.IsZero() || limit.IsZero() {
		return false
	}
	if order := compareAsFarAs(t.numbers(), limit.numbers()); order != 0 {
		return order > 0
	}
	if t.revStart == 0 || limit.revStart == 0 {
		return false
	}
	if order := compareNumber(t.Rev(), limit.Rev()); order != 0 {
		return order > 0
	}
	return compareAsFarAs(t.Build(), limit.Build()) > 0
}

// compareAsFarAs compares dotted numbers, and no more of them than limit has.
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
