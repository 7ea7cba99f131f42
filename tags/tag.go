// SPDX-License-Identifier: Apache-2.0

package tags

// Form says how much of a release a tag names. The zero value is the form of
// the zero [Tag].
type Form int

// The forms, from the least to the most exact.
const (
	Short        Form = iota + 1 // 2.6.2
	Intermediate                 // 2.6.2-rev1
	Long                         // 2.6.2-rev1-build5.1
)

// String gives "short", "intermediate" or "long", and "none" for anything else.
func (f Form) String() string {
	if f < Short || f > Long {
		return "none"
	}
	return [...]string{"short", "intermediate", "long"}[f-Short]
}

// Tag is a tag that one of the grammars has read. It is a small value, made by
// [Parse] or [Dialect.Parse]; the zero value is no tag.
type Tag struct {
	raw string
	// Offsets into raw, which the OCI limit keeps below 256. Components are
	// substrings, so that neither reading nor comparing copies anything.
	appEnd     uint8
	revStart   uint8 // 0: no revision
	revEnd     uint8
	buildStart uint8 // 0: no build
}

// String gives the text that was parsed, byte for byte. With the dialect
// [Plus] that text may be none a registry takes: see [Tag.Wire].
func (t Tag) String() string { return t.raw }

// Wire gives the tag as a registry knows it. It differs from [Tag.String] only
// for the dialect [Plus], whose "+" becomes the "-build" that was shipped.
func (t Tag) Wire() string {
	if t.buildStart > 0 && t.raw[t.revEnd] == '+' {
		return t.raw[:t.revEnd] + coreBuild + t.Build()
	}
	return t.raw
}

// IsZero reports whether t is no tag.
func (t Tag) IsZero() bool { return t.raw == "" }

// Form tells which form t has; 0 for the zero tag.
func (t Tag) Form() Form {
	switch {
	case t.raw == "":
		return 0
	case t.buildStart > 0:
		return Long
	case t.revStart > 0:
		return Intermediate
	}
	return Short
}

// App gives the application version, with its v: "v1.18.6".
func (t Tag) App() string { return t.raw[:t.appEnd] }

// Rev gives the image revision: "2" of v1.18.6-rev2, "" when absent.
func (t Tag) Rev() string { return t.raw[t.revStart:t.revEnd] }

// Build gives the build: "3.8" of v1.18.6-rev2-build3.8, "" when absent.
func (t Tag) Build() string {
	if t.buildStart == 0 {
		return ""
	}
	return t.raw[t.buildStart:]
}

// HasV reports whether the application version is spelled with a v. The v has
// no rank in the order but belongs to the identity: 1.18.6 and v1.18.6 are tags
// of two series.
func (t Tag) HasV() bool { return vLength(t.raw) == 1 }

// Intermediate gives the intermediate tag of an intermediate or long tag, in
// the same spelling. It is false for a short tag, which does not say its
// revision.
func (t Tag) Intermediate() (Tag, bool) {
	if t.revStart == 0 {
		return Tag{}, false
	}
	return Tag{raw: t.raw[:t.revEnd], appEnd: t.appEnd, revStart: t.revStart, revEnd: t.revEnd}, true
}

// Short gives the short tag: the application version alone.
func (t Tag) Short() Tag { return Tag{raw: t.App(), appEnd: t.appEnd} }

// IsBuildOf reports whether a long tag is a build of a floating one.
func (t Tag) IsBuildOf(floating Tag) bool {
	return t.App() == floating.App() && (floating.Form() == Short || t.Rev() == floating.Rev())
}

// numbers gives the application version without its v.
func (t Tag) numbers() string { return t.raw[vLength(t.raw):t.appEnd] }

func vLength(text string) int {
	if text != "" && text[0] == 'v' {
		return 1
	}
	return 0
}
