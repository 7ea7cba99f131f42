// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"errors"
	"fmt"
	"regexp"
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
	tag, err := parseSUSE(text)
	if !errors.Is(err, ErrUnrecognized) {
		return tag, err
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

// maxPattern limits the length of a pattern, in bytes.
const maxPattern = 256

// The groups of a pattern.
const (
	groupVersion = "version"
	groupRev     = "rev"
	groupBuild   = "build"
	groupPre     = "pre"
)

// pattern is a regular expression that selects the tags of a series and finds their numbers.
type pattern struct {
	text                     string
	re                       *regexp.Regexp
	version, rev, build, pre int // group indices; -1 if absent
}

// probes are tags of many kinds. A pattern that matches all of them and finds no version in any is too general.
var probes = []string{"latest", "1.2.3", "v1.2.3-alpine", "2024-01-15", "main-1a2b3c4"}

// compile compiles a pattern and rejects one that cannot order tags.
func compile(text string) (*pattern, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("pattern: %d bytes, want at most %d", len(text), maxPattern)
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("pattern: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	groups := []string{groupVersion, groupRev, groupBuild, groupPre}
	for n, name := range re.SubexpNames() {
		switch {
		case name != "" && !slices.Contains(groups, name):
			return nil, fmt.Errorf("pattern: group %q: want one of %s", name, strings.Join(groups, ", "))
		case name != "" && re.SubexpIndex(name) != n:
			return nil, fmt.Errorf("pattern: group %s: twice, want it once", name)
		}
	}
	p := &pattern{
		text: text, re: re, version: re.SubexpIndex(groupVersion),
		rev: re.SubexpIndex(groupRev), build: re.SubexpIndex(groupBuild), pre: re.SubexpIndex(groupPre),
	}
	if p.version < 0 {
		return nil, errors.New("pattern: no group (?P<version>...): want one around the version, as in " +
			"^(?P<version>.*)-alpine$")
	}
	capturesNothing := func(tag string) bool {
		m := re.FindStringSubmatchIndex(tag)
		return m != nil && m[2*p.version] == m[2*p.version+1]
	}
	if !slices.ContainsFunc(probes, func(tag string) bool { return !capturesNothing(tag) }) {
		return nil, errors.New("pattern: it matches every tag, and the group version is empty: " +
			"want the version in it, as in ^(?P<version>.*)-alpine$")
	}
	return p, nil
}

// parse reads text, which must be an OCI tag.
func (p *pattern) parse(text string, versions Versions) (Tag, error) {
	m := p.re.FindStringSubmatchIndex(text)
	if m == nil {
		return Tag{}, &textError{text, ErrUnrecognized, "the pattern does not match it"}
	}
	group := func(n int) span {
		if n < 0 || m[2*n] < 0 || m[2*n] == m[2*n+1] {
			return span{}
		}
		return newSpan(m[2*n], m[2*n+1])
	}
	tag := Tag{raw: text, reading: byPattern}
	reason := "the group version of the pattern is empty"
	if version := group(p.version); version.is() {
		reason = tag.readVersion(version, versions)
	}
	if reason == "" {
		reason = tag.readGroups(group(p.rev), group(p.build), group(p.pre))
	}
	if reason != "" {
		return Tag{}, &textError{text, ErrUnrecognized, reason}
	}
	return tag, nil
}

// readGroups reads the parts that have their own groups.
func (t *Tag) readGroups(rev, build, pre span) (reason string) {
	for _, s := range []span{rev, build} {
		if s.is() && !isDotted(strings.NewReplacer("-", ".", "_", ".", "T", ".").Replace(s.of(t.raw))) {
			return "not a number in a group of the pattern: " + s.of(t.raw)
		}
	}
	if rev.is() {
		t.rev = rev
	}
	if build.is() {
		t.build = build
	}
	if pre.is() {
		t.pre, t.isWord = pre, false
	}
	if t.reading != bySUSEPattern {
		return ""
	}
	switch {
	case t.build.is() && !t.rev.is():
		return "build without revision"
	case t.pre.is():
		return "a pre-release, which versions: suse does not have"
	case t.rev.is() && t.rev.start < t.version.end, t.build.is() && t.build.start < t.rev.end:
		return "not in the order version, revision, build, which versions: suse requires"
	}
	return ""
}
