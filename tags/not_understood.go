// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// NotUnderstood is a tag that a person would call newer than the followed one and than every tag
// that an image may go to, and that no policy can offer.
type NotUnderstood struct {
	Tag    string `json:"tag"`
	Reason string `json:"reason"` // "leading zero in application version"
}

// lenient is how people write a version: a number with dots, after a v or a word for a version, and
// what follows it.
var lenient = regexp.MustCompile(
	`^([rR]|[vV][-_.]?|(?i:release|version|rel|ver|stable)[-_.]?[vV]?)?` +
		`([0-9]+(?:\.[0-9]+)*)([-_+.a-zA-Z].*)?$`)

// preRelease is a suffix of what is not released yet.
var preRelease = regexp.MustCompile(
	`(?i)^([-_.]?(alpha|beta|rc|pre|preview|dev|snapshot|nightly|canary|test|ea|m[0-9])|[ab][0-9])`)

// noVersion is a number without a dot and with letters at it: 1a2b3c4 is a hash, r1234 a revision.
var noVersion = regexp.MustCompile(`^([rR][0-9]+|[vVrR]?[0-9]+[a-zA-Z].*)$`)

// lenientRev is a revision, right or wrong.
var lenientRev = regexp.MustCompile(`(?i)^-rev\.?([0-9]+)`)

// read is a tag as a person reads it.
type read struct {
	text, prefix, suffix string
	numbers              []string // without leading zeros
	rev                  string
}

func readLeniently(text string) (read, bool) {
	m := lenient.FindStringSubmatch(text)
	if m == nil || len(text) > maxLength || noVersion.MatchString(text) {
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

func withoutZeros(n string) string {
	if n = strings.TrimLeft(n, "0"); n == "" {
		return "0"
	}
	return n
}

// isAbove compares what both tell: 15.5.36 is not above 15.5.
func (r read) isAbove(other read) bool {
	for i := range min(len(r.numbers), len(other.numbers)) {
		if order := compareNumber(r.numbers[i], other.numbers[i]); order != 0 {
			return order > 0
		}
	}
	return len(r.numbers) == len(other.numbers) && r.rev != "" && other.rev != "" && compareNumber(r.rev, other.rev) > 0
}

// FindNotUnderstood returns the tags of a list that a person would call newer than follow, and that
// cannot be its successor for how they are spelled; the highest first, at most `most`. What is not
// above the highest successor is of no interest, and neither are pre-releases, dates and hashes.
func FindNotUnderstood(list []string, follow Tag, d Dialect, most int) []NotUnderstood {
	known, ok := readLeniently(follow.Wire())
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
		if t, err := d.Parse(text); err == nil && SamePrecision(t, follow) && ChangeBetween(follow, t) != Unrelated {
			if r.isAbove(known) {
				known = r
			}
			continue
		}
		found = append(found, r)
	}
	found = slices.DeleteFunc(found, func(r read) bool { return !r.isAbove(known) })
	sortRead(found)
	var out []NotUnderstood
	for _, r := range found[:min(len(found), most)] {
		out = append(out, NotUnderstood{r.text, r.reason(follow, d)})
	}
	return out
}

// Unread returns the tags of a list that no grammar takes, and in which a person may read a version
// with a dot; the highest first, at most `most`.
func Unread(list []string, d Dialect, most int) []string {
	var found []read
	for _, text := range list {
		r, ok := readLeniently(text)
		if _, err := d.Parse(text); ok && err != nil && len(r.numbers) > 1 && !preRelease.MatchString(r.suffix) {
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

// sortRead sorts tags, the highest first.
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

// at returns a number; empty, the lowest: there is none.
func at(numbers []string, i int) string {
	if i < len(numbers) {
		return numbers[i]
	}
	return ""
}

// reason is why a tag is no successor of the followed one.
func (r read) reason(follow Tag, d Dialect) string {
	t, err := d.Parse(r.text)
	switch {
	case err != nil && Reason(err) != "":
		return Reason(err)
	case err != nil:
		return r.foreign()
	case t.HasV() && !follow.HasV():
		return fmt.Sprintf("spelled with a v, and %s is not", follow)
	case follow.HasV() && !t.HasV():
		return fmt.Sprintf("spelled without a v, and %s has one", follow)
	case t.Form() != follow.Form():
		return fmt.Sprintf("%s tag, and %s is %s", t.Form(), follow, follow.Form())
	}
	return fmt.Sprintf("%d numbers, and %s has %d", len(r.numbers), follow, strings.Count(follow.numbers(), ".")+1)
}

// foreign is why no grammar took a tag of another scheme.
func (r read) foreign() string {
	if _, f := scan(r.text, spelling{rev: coreRev, build: coreBuild}); f.what == "leading zero in" {
		return f.String()
	}
	if r.suffix != "" {
		return fmt.Sprintf("%q after the version", r.suffix)
	}
	return fmt.Sprintf("%q before the version", r.prefix)
}
