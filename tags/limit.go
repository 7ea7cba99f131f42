// SPDX-License-Identifier: Apache-2.0

package tags

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
