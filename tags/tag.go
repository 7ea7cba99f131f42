// SPDX-License-Identifier: Apache-2.0

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
