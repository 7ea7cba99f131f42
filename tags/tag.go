// SPDX-License-Identifier: Apache-2.0

// Package tags reads, orders and compares the tags of container images, in SUSE's scheme and in others.
//
// # Words
//
// A [Tag] of SUSE's scheme has one of three forms:
//
//	short         2.6.2                 application version
//	intermediate  2.6.2-rev1            + image revision (kiwi's <version>)
//	long          2.6.2-rev1-build5.1   + build (OBS's RELEASE)
//
// Short and intermediate tags float: a rebuild moves them to a new digest. A publisher does not move a long tag. A tag
// of another scheme has one form, single. Its name ([Tag.Name]) is the part that stays the same when the numbers rise.
//
// # Grammars
//
// A [Scheme] defines how the tags of a repository are read. Without settings SUSE's grammar is tried first:
//
//	OCI tag = [A-Za-z0-9_][A-Za-z0-9._-]{0,127}
//	suse    = app [ "-rev" num [ "-build" num *( "." num ) ] ]
//	app     = [ "v" ] num *( "." num )
//	num     = "0" / nonzero-digit *digit
//
// It is case sensitive, anchored, and accepts ASCII digits only; the length of a number is not limited. A tag that
// neither matches it nor is malformed is read by the general grammar:
//
//	general = [ word sep ] version [ pre ] *( sep part )
//	version = [ "v" ] 1*digit *( "." 1*digit ) / a date as 2024-01-15, with a time or without
//	pre     = [ sep ] ( "alpha" / "beta" / "rc" / ... ) [ [ sep ] number ]
//	sep     = "-" / "_" / "."
//
// After a word, a version must have a dot or be a date. Two kinds of parts are numbers: a revision ("3" or "3.36" alone
// after the version, "2" between 7.9.1 and ubi8, "r3", "p3", "k3s3", "rke2r3", "flannel3", "hotfix-3") and a build
// ("build3", "ls3", a date). All other parts belong to the name. A tag with a part that may be a hash cannot be
// ordered.
//
// A pattern replaces both grammars: it selects the tags of a series and the places of their numbers.
//
// A tag that cannot be ordered is in one of three classes, each with its own error:
//
//   - malformed ([ErrMalformed]): the tag uses SUSE's scheme and breaks its grammar. Its
//     publisher should be told.
//   - unrecognized ([ErrUnrecognized]): a tag without a version, or with one that cannot be ordered (latest, a hash,
//     a signature). Ignored, but counted.
//   - invalid ([ErrInvalid]): not a tag that a registry can store.
//
// A tag is malformed if one of the scheme's marks follows a dotted number:
//
//   - "-rev", in any case of letters and not followed by a letter, is a mark.
//   - "-build" directly after the number is a mark, if only digits and dots
//     follow and these are not eight or more digits without a dot. OBS's
//     RELEASE always has a dot (check-in.rebuild), while others write a date
//     there: v1.14.7-build20260909, v1.21.10-build2021041301.
//
// # Promises
//
// A version may have four parts, and -rev1 is newer than a tag without a revision. No successor of a tag has another
// name, is lower, or is a pre-release where the tag is a release, unless the scheme allows pre-releases. A tag says
// nothing about content: decide by digest, show the tag. A bare dotted number is a short tag even where a publisher
// means a build number (BCI's 15.5.36.5.67); only configuration can say so.
//
// All functions are pure and safe for concurrent use.
package tags

import "strings"

// Form says how specific a tag is. The zero value is the form of the zero [Tag].
type Form int

// The forms. The first three are SUSE's, from the least to the most specific. A tag of any other scheme is Single: it
// cannot be converted to another form.
const (
	Short        Form = iota + 1 // 2.6.2
	Intermediate                 // 2.6.2-rev1
	Long                         // 2.6.2-rev1-build5.1
	Single                       // 2.6.2-alpine, v1.33.5-rke2r1-build20250910
)

// String returns "short", "intermediate", "long" or "single", and "none" for any other value.
func (f Form) String() string {
	if f < Short || f > Single {
		return "none"
	}
	return [...]string{"short", "intermediate", "long", "single"}[f-Short]
}

// Tag is a tag read by a [Scheme]. It is a small value, made by [Parse] or [Scheme.Parse]; the zero value is not a tag.
type Tag struct {
	raw string
	// Parts of raw, so that neither reading nor comparing copies text.
	version span // without its v
	pre     span // the pre-release, with the separator before it
	rev     span
	build   span
	reading reading
	hasV    bool
	// isWord: the pre-release is only a word, such as -dev, which may also name a variant.
	isWord bool
	// isDate: the digits of the version are a year, a month and a day.
	isDate bool
	// wantsPre: the scheme allows pre-releases.
	wantsPre bool
}

// span is a part of a tag, which the OCI limit keeps below 256 bytes. The zero span is absent.
type span struct{ start, end uint8 }

// newSpan returns a span of a text of at most maxLength bytes, so the masks change nothing.
func newSpan(start, end int) span { return span{uint8(start & 0xff), uint8(end & 0xff)} }

func (s span) is() bool { return s.end > 0 }

func (s span) of(text string) string { return text[s.start:s.end] }

// reading says which grammar has read a tag.
type reading uint8

const (
	bySUSE reading = iota
	byGeneral
	byPattern     // by a pattern, which selects the tags of a series: they have no name
	bySUSEPattern // by a pattern for SUSE's three forms
)

// String returns the text that was parsed, byte for byte.
func (t Tag) String() string { return t.raw }

// IsZero reports whether t is the zero tag.
func (t Tag) IsZero() bool { return t.raw == "" }

func (t Tag) isSUSE() bool { return t.reading == bySUSE || t.reading == bySUSEPattern }

// Form returns the form of t; 0 for the zero tag. A dotted number alone is short in the general grammar, too.
func (t Tag) Form() Form {
	switch {
	case t.raw == "":
		return 0
	case !t.isSUSE():
		if t.reading == byGeneral && len(t.App()) == len(t.raw) && strings.Trim(t.numbers(), ".0123456789") == "" {
			return Short
		}
		return Single
	case t.build.is():
		return Long
	case t.rev.is():
		return Intermediate
	}
	return Short
}

// App returns the application version with its v and without a pre-release: "v1.18.6".
func (t Tag) App() string {
	if t.hasV {
		return t.raw[t.version.start-1 : t.version.end]
	}
	return t.numbers()
}

// Pre returns the pre-release without the separator before it: "rc.1" of 1.2.0-rc.1, "" if absent.
func (t Tag) Pre() string { return strings.TrimLeft(t.pre.of(t.raw), "-_.") }

// Rev returns the image revision: "2" of v1.18.6-rev2, "" if absent.
func (t Tag) Rev() string { return t.rev.of(t.raw) }

// Build returns the build: "3.8" of v1.18.6-rev2-build3.8, "" if absent.
func (t Tag) Build() string { return t.build.of(t.raw) }

// HasV reports whether the application version has a v. The order ignores the v, but 1.18.6 and v1.18.6 are tags of two
// series.
func (t Tag) HasV() bool { return t.hasV }

// Intermediate returns the intermediate tag of an intermediate or long tag, in the same spelling. It returns false for
// a tag of another form.
func (t Tag) Intermediate() (Tag, bool) {
	if !t.isSUSE() || !t.rev.is() {
		return Tag{}, false
	}
	t.raw = t.cut(t.rev.end)
	t.build = span{}
	return t, true
}

// Short returns the short tag: the application version alone. A single tag returns itself.
func (t Tag) Short() Tag {
	if !t.isSUSE() {
		return t
	}
	t.raw = t.cut(t.version.end)
	t.rev, t.build = span{}, span{}
	return t
}

// cut removes the text between end and the last part.
func (t Tag) cut(end uint8) string {
	last := max(t.version.end, t.rev.end, t.build.end)
	if int(last) == len(t.raw) {
		return t.raw[:end]
	}
	return t.raw[:end] + t.raw[last:]
}

// IsBuildOf reports whether t is a long tag and a build of floating.
func (t Tag) IsBuildOf(floating Tag) bool {
	return t.isSUSE() && floating.isSUSE() && t.App() == floating.App() &&
		(floating.Form() == Short || t.Rev() == floating.Rev())
}

// numbers returns the application version without its v.
func (t Tag) numbers() string { return t.version.of(t.raw) }

func vLength(text string) int {
	if text != "" && text[0] == 'v' {
		return 1
	}
	return 0
}

// Name returns the tag with words in place of its numbers, "{version}-alpine" or "v{version}-rke2r{rev}-build{build}":
// the part that stays the same from tag to tag. It has no pre-release. SUSE's three forms have the same name, and so
// have all tags that a pattern reads.
func (t Tag) Name() string {
	if t.IsZero() {
		return ""
	}
	if t.reading != byGeneral {
		return t.raw[t.version.start-t.vLength():t.version.start] + "{version}"
	}
	out, at := "", uint8(0)
	for _, cut := range t.cuts() {
		if cut.is() {
			out += t.raw[at:cut.start] + cut.word
			at = cut.end
		}
	}
	if t.isWord {
		out += t.pre.of(t.raw)
	}
	return out + t.raw[at:]
}

func (t Tag) vLength() uint8 {
	if t.hasV {
		return 1
	}
	return 0
}

// cut is a part of a tag, and the word that replaces it in the name.
type cut struct {
	span
	word string
}

// cuts returns the parts of the tag that do not belong to the name, in order.
func (t Tag) cuts() [3]cut {
	version := cut{span{t.version.start, max(t.version.end, t.pre.end)}, "{version}"}
	rev, build := cut{t.rev, "{rev}"}, cut{t.build, "{build}"}
	if build.is() && build.start < rev.start {
		return [...]cut{version, build, rev}
	}
	return [...]cut{version, rev, build}
}

// sameName reports whether two tags differ in numbers and pre-releases only.
func sameName(a, b Tag) bool {
	switch {
	case a.hasV != b.hasV:
		return false
	case a.reading >= byPattern || b.reading >= byPattern, a.reading == bySUSE && b.reading == bySUSE:
		return true
	case a.isSUSE() && a.rev.is(), b.isSUSE() && b.rev.is():
		return false
	case (a.isWord || b.isWord) && a.pre.of(a.raw) != b.pre.of(b.raw):
		return false
	case a.rev.is() != b.rev.is() || a.build.is() != b.build.is():
		return false
	}
	cutsA, cutsB := a.cuts(), b.cuts()
	atA, atB := uint8(0), uint8(0)
	for n := range cutsA {
		if cutsA[n].is() != cutsB[n].is() {
			return false
		}
		if !cutsA[n].is() {
			continue
		}
		if a.raw[atA:cutsA[n].start] != b.raw[atB:cutsB[n].start] {
			return false
		}
		atA, atB = cutsA[n].end, cutsB[n].end
	}
	return a.raw[atA:] == b.raw[atB:]
}
