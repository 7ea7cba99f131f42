// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"fmt"
	"strings"
)

// Dialect is one way to spell revision and build. The RFC that asked for these
// tags (caasp-rfcs, pull request 11) spelled them differently in its sections
// and its review; what was shipped is [Core]. The others exist for images
// tagged by the RFC's letter.
//
// A configuration names a repository's dialect. It is never found out from a
// tag: 2.6.1-1.5.1 may be a revision and its build here, and BCI's
// 2.1.1-3.36 a version and its OBS release there.
//
// A dialect takes its own spelling only, so that one repository never mixes
// two; [Plus] alone takes Core's as well. A tag of another dialect with -rev
// in it is malformed: most likely the configured name is wrong.
type Dialect string

const (
	// Core is what was shipped: 2.6.1-rev1, 2.6.1-rev1-build5.1.
	Core Dialect = ""
	// Hyphen is the RFC's first section, "<app-version>-<image-version>", with
	// the build appended by a dot as its review proposed: 2.6.1-1, 2.6.1-1.5.1.
	Hyphen Dialect = "hyphen"
	// HyphenDash is the same with the RFC's own template "-<buildID>": 2.6.1-1,
	// 2.6.1-1-5.1.
	HyphenDash Dialect = "hyphen-dash"
	// ShortB is the reviewers' replacement for the plus sign: 2.6.1-rev1,
	// 2.6.1-rev1-b5.1.
	ShortB Dialect = "short-b"
	// Plus is the RFC's later section, "Images are going to have 3 tags":
	// 2.6.1-rev1, 2.6.1-rev1+5.1. Registries refuse the plus sign, so this
	// dialect is for texts that people and packages wrote: it reads the plus
	// sign beside the core spelling, and [Tag.Wire] never has it.
	Plus Dialect = "plus"
)

// String gives the name that a configuration uses; Core is "core".
func (d Dialect) String() string {
	if d == Core {
		return "core"
	}
	return string(d)
}

// dialects is the one list of them, in the order in which people are told of them.
var dialects = []struct {
	dialect  Dialect
	spelling spelling
}{
	{Core, spelling{rev: coreRev, build: coreBuild}},
	{Hyphen, spelling{rev: "-", build: "."}},
	{HyphenDash, spelling{rev: "-", build: "-"}},
	{ShortB, spelling{rev: coreRev, build: "-b"}},
	{Plus, spelling{rev: coreRev, build: coreBuild}}, // and + as a build, see Parse
}

// DialectNames lists the names of all dialects.
func DialectNames() []string {
	out := make([]string, len(dialects))
	for i, is := range dialects {
		out[i] = is.dialect.String()
	}
	return out
}

// DialectOf returns the first dialect that takes a tag; false: none does.
func DialectOf(text string) (Dialect, bool) {
	for _, is := range dialects {
		if _, err := is.dialect.Parse(text); err == nil {
			return is.dialect, true
		}
	}
	return Core, false
}

// ParseDialect reads one of [DialectNames]; nothing is core, too.
func ParseDialect(name string) (Dialect, error) {
	if name == Core.String() {
		return Core, nil
	}
	d := Dialect(name)
	if _, known := d.spelling(); !known {
		return Core, unknownDialect(d)
	}
	return d, nil
}

// Parse reads a tag of the dialect. Its errors are those of the function
// [Parse], beside the one for a dialect that does not exist.
func (d Dialect) Parse(text string) (Tag, error) {
	sp, known := d.spelling()
	if !known {
		return Tag{}, unknownDialect(d)
	}
	if d != Plus || !strings.Contains(text, "+") {
		return parse(text, sp)
	}
	// The OCI limits are those of the wire form.
	if detail := ociFault(strings.Replace(text, "+", sp.build, 1)); detail != "" {
		return Tag{}, invalid(text, detail)
	}
	return parseChecked(text, spelling{rev: sp.rev, build: "+"})
}

func (d Dialect) spelling() (sp spelling, known bool) {
	for _, is := range dialects {
		if is.dialect == d {
			return is.spelling, true
		}
	}
	return spelling{}, false
}

func unknownDialect(d Dialect) error {
	return fmt.Errorf("tags: dialect %q: unknown, one of %s", string(d), strings.Join(DialectNames(), ", "))
}
