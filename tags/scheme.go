// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"fmt"
	"slices"
	"strings"
)

// Versions selects how the version of a tag is read.
type Versions string

// The ways to read a version. AnyVersions is the general grammar and the default of a configuration.
const (
	AnyVersions Versions = ""
	Semver      Versions = "semver"   // MAJOR.MINOR.PATCH with pre-releases, by semver.org
	Numeric     Versions = "numeric"  // numbers only, compared one by one
	Calendar    Versions = "calendar" // dates: year, month and day
	SUSE        Versions = "suse"     // SUSE's three forms only
)

// VersionsNames lists the values that a configuration accepts.
func VersionsNames() []string {
	return []string{string(Semver), string(Numeric), string(Calendar), string(SUSE)}
}

// Scheme reads the tags of one repository. The zero value reads without settings: by SUSE's grammar, else by the
// general grammar of the package comment.
type Scheme struct {
	pattern     *pattern // nil reads the whole tag
	versions    Versions
	prereleases bool
}

// NewScheme returns the scheme for these settings. pattern may be empty; with versions and without a pattern the whole
// tag is the version. With prereleases a pre-release may follow a release.
func NewScheme(pattern string, versions Versions, prereleases bool) (Scheme, error) {
	if versions != AnyVersions && !slices.Contains(VersionsNames(), string(versions)) {
		return Scheme{}, fmt.Errorf("versions %q: want one of %s", string(versions), strings.Join(VersionsNames(), ", "))
	}
	s := Scheme{versions: versions, prereleases: prereleases}
	if pattern == "" {
		return s, nil
	}
	compiled, err := compile(pattern)
	if err != nil {
		return Scheme{}, err
	}
	s.pattern = compiled
	return s, nil
}

// SUSEOnly returns the scheme that accepts only SUSE's three forms.
func SUSEOnly() Scheme { return Scheme{versions: SUSE} }

// Pattern returns the pattern of the scheme, "" if it has none.
func (s Scheme) Pattern() string {
	if s.pattern == nil {
		return ""
	}
	return s.pattern.text
}

// String describes the scheme in one line. Two schemes with the same description read tags alike.
func (s Scheme) String() string {
	return fmt.Sprintf("pattern %q, versions %q, prereleases %t", s.Pattern(), string(s.versions), s.prereleases)
}

// Parse reads a tag of the scheme. It returns the errors of the function [Parse]. A tag that the pattern does not match
// is unrecognized.
func (s Scheme) Parse(text string) (Tag, error) {
	if detail := ociFault(text); detail != "" {
		return Tag{}, invalid(text, detail)
	}
	var tag Tag
	var err error
	switch {
	case s.pattern != nil:
		tag, err = s.pattern.parse(text, s.versions)
	case s.versions == AnyVersions:
		tag, err = parseAny(text)
	case s.versions == SUSE:
		tag, err = parseSUSE(text)
	default:
		tag, err = parseWhole(text, s.versions)
	}
	tag.wantsPre = s.prereleases && err == nil
	return tag, err
}

// parseAny reads a tag without settings.
func parseAny(text string) (Tag, error) {
	tag, f := scan(text)
	if f == (fault{}) {
		return tag, nil
	}
	if reason, ours := explain(text, f); ours {
		return Tag{}, &textError{text, ErrMalformed, reason}
	}
	tag, reason := readGeneral(text)
	if reason != "" {
		return Tag{}, &textError{text, ErrUnrecognized, reason}
	}
	return tag, nil
}

func parseSUSE(text string) (Tag, error) {
	tag, f := scan(text)
	if f == (fault{}) {
		return tag, nil
	}
	if reason, ours := explain(text, f); ours {
		return Tag{}, &textError{text, ErrMalformed, reason}
	}
	return Tag{}, &textError{text, ErrUnrecognized, "not SUSE's scheme"}
}

// parseWhole reads a text that must be a version as a whole.
func parseWhole(text string, versions Versions) (Tag, error) {
	tag := Tag{raw: text, reading: byPattern}
	if reason := tag.readVersion(newSpan(0, len(text)), versions); reason != "" {
		return Tag{}, &textError{text, ErrUnrecognized, reason}
	}
	return tag, nil
}
