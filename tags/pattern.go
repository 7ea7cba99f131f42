// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

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
		return nil, errors.New("pattern: it takes every tag, and the group version is empty: " +
			"want the version in it, as in ^(?P<version>.*)-alpine$")
	}
	return p, nil
}

// parse reads text, which must be an OCI tag.
func (p *pattern) parse(text string, versions Versions) (Tag, error) {
	m := p.re.FindStringSubmatchIndex(text)
	if m == nil {
		return Tag{}, &textError{text, ErrUnrecognized, "the pattern does not take it"}
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
		return "a pre-release, which versions: suse has not"
	case t.rev.is() && t.rev.start < t.version.end, t.build.is() && t.build.start < t.rev.end:
		return "not in the order version, revision, build, as versions: suse wants"
	}
	return ""
}
