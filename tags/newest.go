// SPDX-License-Identifier: Apache-2.0

package tags

import "strings"

// SamePrecision reports whether two tags float equally far. They have the same
// form, and a short tag as many numbers as the other: 1.28 floats over the patch
// releases of 1.28, so what follows it goes on to 1.29 and not to 1.29.0, which
// never moves to another version. A tag with a revision names an application
// version as a whole, however many numbers that has: 3.2-rev1 and 3.2.1-rev1. Digits
// alone that are a date, a hash or the number of a build (see [Tag.IsStamp]) float with
// their kind only.
func SamePrecision(a, b Tag) bool {
	if a.Form() != b.Form() || !isSameKind(a, b) {
		return false
	}
	return a.Form() != Short || strings.Count(a.raw, ".") == strings.Count(b.raw, ".")
}

// Newest gives the highest of tags that an image following follow may go to: of
// follow's precision and v spelling, and changing at most largest against it. It
// is never lower than follow, and may be follow itself where tags have it; with
// largest [Same] it can be nothing else. It is false if no tag fits.
//
// By precision, BCI's build number 15.5.36.5.67 is no successor of 15.5. Long tags
// of application versions with different counts of numbers are compared as they are.
func Newest(tags []Tag, follow Tag, largest Change) (Tag, bool) {
	var newest Tag
	for _, tag := range tags {
		if !SamePrecision(tag, follow) {
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
