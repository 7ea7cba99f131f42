// SPDX-License-Identifier: Apache-2.0

package tags

// Newest gives the highest of tags that an image following follow may go to:
// of follow's form and v spelling, and changing at most largest against it. It
// is never lower than follow, and may be follow itself where tags have it; with
// largest [Same] it can be nothing else. It is false if no tag fits.
//
// Application versions may have any count of numbers. In a repository that has
// BCI's 15.5.36.5.67 beside 15.5, the former is a patch of the latter: leave out
// what the repository's configuration calls a build number before asking.
func Newest(tags []Tag, follow Tag, largest Change) (Tag, bool) {
	var newest Tag
	for _, tag := range tags {
		if tag.Form() != follow.Form() {
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
