// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// NotUnderstood is a tag that no policy can offer although a person would call it newer than the followed tag and than
// every tag that can follow it.
type NotUnderstood struct {
	Tag    string `json:"tag"`
	Reason string `json:"reason"` // "empty build"
	// Pattern is the `tags.pattern` that would order it; empty if none is known.
	Pattern string `json:"pattern,omitempty"`
}

// String returns the tag, why it is not understood, and the setting that would order it.
func (n NotUnderstood) String() string {
	if n.Pattern == "" {
		return fmt.Sprintf("%s (%s)", n.Tag, n.Reason)
	}
	return fmt.Sprintf("%s (%s; tags.pattern '%s' orders it)", n.Tag, n.Reason, n.Pattern)
}

// lenient matches a version as people write it: a dotted number, an optional v or word before it, and a rest.
var lenient = regexp.MustCompile(
	`^([rR]|[vV][-_.]?|(?i:release|version|rel|ver|stable)[-_.]?[vV]?)?` +
		`([0-9]+(?:\.[0-9]+)*)([-_+.a-zA-Z].*)?$`)

// preRelease matches the suffix of a pre-release.
var preRelease = regexp.MustCompile(
	`(?i)^([-_.]?(alpha|beta|rc|pre|preview|dev|snapshot|nightly|canary|test|ea|m[0-9])|[ab][0-9])`)

// noNumbers matches a number without a dot that letters touch: 1a2b3c4 is a hash, r1234 a revision.
var noNumbers = regexp.MustCompile(`^([rR][0-9]+|[vVrR]?[0-9]+[a-zA-Z].*)$`)

// lenientRev matches a revision, valid or not.
var lenientRev = regexp.MustCompile(`(?i)^-rev\.?([0-9]+)`)

// read is a tag as a person would read it.
type read struct {
	text, prefix, suffix string
	numbers              []string // without leading zeros
	rev                  string
}

func readLeniently(text string) (read, bool) {
	m := lenient.FindStringSubmatch(text)
	if m == nil || len(text) > maxLength || noNumbers.MatchString(text) {
		return read{}, false
	}
	r := read{text: text, prefix: m[1], suffix: m[3]}
	for n := range strings.SplitSeq(m[2], ".") {
		r.numbers = append(r.numbers, withoutZeros(n))
	}
	if rev := lenientRev.FindStringSubmatch(r.suffix); rev != nil {
		r.rev = withoutZeros(rev[1])
	}
	return r, true
}

// isAbove compares the numbers that both tags have: 15.5.36 is not above 15.5.
func (r read) isAbove(other read) bool {
	for i := range min(len(r.numbers), len(other.numbers)) {
		if order := compareNumber(r.numbers[i], other.numbers[i]); order != 0 {
			return order > 0
		}
	}
	return len(r.numbers) == len(other.numbers) && r.rev != "" && other.rev != "" && compareNumber(r.rev, other.rev) > 0
}

// FindNotUnderstood returns the tags of a list that a person would call newer than follow but whose spelling keeps them
// from following it; the highest first, at most `most`. It leaves out tags that are not above the highest successor,
// pre-releases, dates and hashes.
func FindNotUnderstood(list []string, follow Tag, s Scheme, most int) []NotUnderstood {
	known, ok := readLeniently(follow.String())
	if !ok {
		return nil
	}
	var found []read
	for _, text := range list {
		r, ok := readLeniently(text)
		if !ok || ociFault(text) != "" || !isVersionLike(r.numbers, follow) ||
			r.rev != "" && isOtherKind(r.rev, follow.Rev()) || preRelease.MatchString(r.suffix) {
			continue
		}
		switch t, err := s.Parse(text); {
		case err != nil:
			found = append(found, r)
		case InLine(follow, t):
			if r.isAbove(known) {
				known = r
			}
		case gapBetween(follow, t) != gapPre:
			found = append(found, r)
		}
	}
	found = slices.DeleteFunc(found, func(r read) bool { return !r.isAbove(known) })
	sortRead(found)
	var out []NotUnderstood
	for _, r := range found[:min(len(found), most)] {
		out = append(out, NotUnderstood{r.text, r.reason(follow, s), s.patternBetween(follow.String(), r.text)})
	}
	return out
}

// Unread returns the tags of a list that no grammar accepts but in which a person may read a dotted version; the
// highest first, at most `most`.
func Unread(list []string, s Scheme, most int) []string {
	var found []read
	for _, text := range list {
		r, ok := readLeniently(text)
		if _, err := s.Parse(text); ok && err != nil && len(r.numbers) > 1 && !preRelease.MatchString(r.suffix) {
			found = append(found, r)
		}
	}
	sortRead(found)
	var out []string
	for _, r := range found[:min(len(found), most)] {
		out = append(out, r.text)
	}
	return out
}

// sortRead sorts tags in descending order.
func sortRead(list []read) {
	slices.SortStableFunc(list, func(a, b read) int {
		for i := range max(len(a.numbers), len(b.numbers)) {
			if order := compareNumber(at(b.numbers, i), at(a.numbers, i)); order != 0 {
				return order
			}
		}
		if order := compareNumber(b.rev, a.rev); order != 0 {
			return order
		}
		return strings.Compare(a.text, b.text)
	})
}

// at returns the number at i, or "", the lowest, if there is none.
func at(numbers []string, i int) string {
	if i < len(numbers) {
		return numbers[i]
	}
	return ""
}

// reason returns why a tag cannot follow the followed one.
func (r read) reason(follow Tag, s Scheme) string {
	t, err := s.Parse(r.text)
	switch reason := Reason(err); {
	case err == nil:
		return WhyNot(follow, t)
	case reason == noVersion, reason == wordAndNumber:
		return r.unrecognized()
	default:
		return reason
	}
}

// unrecognized returns why the general grammar rejects a tag in which a person reads a version.
func (r read) unrecognized() string {
	if r.suffix != "" {
		return fmt.Sprintf("%q after the version", r.suffix)
	}
	return fmt.Sprintf("%q before the version", r.prefix)
}
