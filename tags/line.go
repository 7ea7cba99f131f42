// SPDX-License-Identifier: Apache-2.0

package tags

import "fmt"

// gap is a reason why one tag cannot follow another under any policy. noGap means that it can.
type gap int

const (
	noGap gap = iota
	gapV
	gapName
	gapForm
	gapKind
	gapPrecision
	gapPre
)

// gapBetween returns why to is not in line with from.
//
// Two tags are in line if they have the same name and form and, without a revision of SUSE's scheme, the same count of
// numbers: 1.28 floats over the patch releases of 1.28, so its successor is 1.29 and not 1.29.0, which never moves to
// another version. A tag with a revision of SUSE's scheme names a whole application version, however many numbers that
// has: 3.2-rev1 and 3.2.1-rev1 are in line. Digits alone that are a date, a hash or a build number (see [Tag.IsStamp])
// are in line only with their kind. A pre-release follows a release only if the scheme allows pre-releases.
func gapBetween(from, to Tag) gap {
	switch {
	case from.IsZero() || to.IsZero():
		return gapName
	case from.hasV != to.hasV:
		return gapV
	case from.line() != to.line():
		return gapForm
	case !sameName(from, to):
		return gapName
	case !isSameKind(from, to):
		return gapKind
	case from.line() <= Short && countNumbers(from.numbers()) != countNumbers(to.numbers()):
		return gapPrecision
	case to.pre.is() && !from.pre.is() && !from.wantsPre:
		return gapPre
	}
	return noGap
}

// line is the form, except that short and single tags share one: 1.28.0-rc.1 is followed by 1.28.0.
func (t Tag) line() Form {
	if f := t.Form(); f != Single {
		return f
	}
	return Short
}

func countNumbers(dotted string) (count int) {
	for dotted != "" {
		_, dotted = cutNumber(dotted)
		count++
	}
	return count
}

// InLine reports whether an image that follows from may move to the tag to by its spelling: same name, form, precision
// and kind, and not a pre-release unless from is one or the scheme allows them. It does not compare versions.
func InLine(from, to Tag) bool { return gapBetween(from, to) == noGap }

// WhyNot returns, for a person, why a tag is not in line with another one; "" if it is.
func WhyNot(from, to Tag) string {
	switch gapBetween(from, to) {
	case noGap:
		return ""
	case gapV:
		if to.hasV {
			return fmt.Sprintf("spelled with a v, and %s is not", from)
		}
		return fmt.Sprintf("spelled without a v, and %s has one", from)
	case gapForm:
		return fmt.Sprintf("%s tag, and %s is %s", to.Form(), from, from.Form())
	case gapKind:
		return fmt.Sprintf("a date, a hash or the number of a build, where %s has a number of another kind", from)
	case gapPrecision:
		return fmt.Sprintf("%d numbers, and %s has %d", countNumbers(to.numbers()), from, countNumbers(from.numbers()))
	case gapPre:
		return fmt.Sprintf("a pre-release, but %s is not one: prereleases: true offers it", from)
	}
	return fmt.Sprintf("another name: %s, and %s is %s", to.Name(), from, from.Name())
}

// Newest returns the highest of tags that an image following follow may move to: in line with it and a change of at
// most largest. The result is never lower than follow. It may be follow itself if tags contains it; with largest [Same]
// no other result is possible. It returns false if no tag fits.
//
// Precision keeps BCI's build number 15.5.36.5.67 from following 15.5. Long tags whose application versions have
// different counts of numbers are compared as they are.
func Newest(tags []Tag, follow Tag, largest Change) (Tag, bool) {
	var newest Tag
	for _, tag := range tags {
		if !InLine(follow, tag) {
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
