// SPDX-License-Identifier: Apache-2.0

package tags_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/tags"
)

// The patterns for the spellings proposed in the RFC that asked for SUSE's tags.
const (
	hyphen     = `^(?P<version>v?[0-9.]+)(-(?P<rev>[0-9]+)(\.(?P<build>[0-9.]+))?)?$`
	hyphenDash = `^(?P<version>v?[0-9.]+)(-(?P<rev>[0-9]+)(-(?P<build>[0-9.]+))?)?$`
	shortB     = `^(?P<version>v?[0-9.]+)(-rev(?P<rev>[0-9]+)(-b(?P<build>[0-9.]+))?)?$`
)

func newScheme(tb fataler, pattern string, versions tags.Versions, pre bool) tags.Scheme {
	tb.Helper()
	s, err := tags.NewScheme(pattern, versions, pre)
	if err != nil {
		tb.Fatalf("%s: %v", pattern, err)
	}
	return s
}

// schemes returns one scheme of each kind.
func schemes(tb fataler) []tags.Scheme {
	tb.Helper()
	return []tags.Scheme{
		{},
		tags.SUSEOnly(),
		newScheme(tb, "", tags.Semver, true),
		newScheme(tb, "", tags.Numeric, false),
		newScheme(tb, "", tags.Calendar, false),
		newScheme(tb, hyphen, tags.SUSE, false),
		newScheme(tb, `^(?P<version>.*)-alpine(?P<rev>[0-9.]*)$`, tags.AnyVersions, true),
		newScheme(tb, `(?P<rev>[0-9]*)x?(?P<version>[0-9.]+)(?P<pre>[a-z]*)(?P<build>.*)`, tags.Numeric, false),
	}
}

func TestSpellingsOfSUSEsFormsArePatterns(t *testing.T) {
	t.Parallel()
	for pattern, spelled := range map[string][2]string{
		hyphen:     {"v2.6.1-1", "v2.6.1-1.5.1"},
		hyphenDash: {"v2.6.1-1", "v2.6.1-1-5.1"},
		shortB:     {"v2.6.1-rev1", "v2.6.1-rev1-b5.1"},
	} {
		s := newScheme(t, pattern, tags.SUSE, false)
		long, err := s.Parse(spelled[1])
		require.NoError(t, err)
		assert.Equal(t, parts{form: tags.Long, app: "v2.6.1", rev: "1", build: "5.1", hasV: true}, partsOf(long), pattern)
		intermediate, ok := long.Intermediate()
		require.True(t, ok)
		again, err := s.Parse(spelled[0])
		require.NoError(t, err)
		assert.Equal(t, again, intermediate)
		assert.Equal(t, tags.Intermediate, again.Form())
		short, err := s.Parse("v2.6.1")
		require.NoError(t, err)
		assert.Equal(t, short, long.Short())
		assert.True(t, long.IsBuildOf(short))
		assert.True(t, long.IsBuildOf(intermediate))
		_, err = s.Parse("v2.6.1-rev1-build5.1")
		require.ErrorIs(t, err, tags.ErrUnrecognized)
	}
}

// A suffix that a pattern matches stays in the shorter forms.
func TestShorterFormsKeepASuffix(t *testing.T) {
	t.Parallel()
	s := newScheme(t, `^(?P<version>.*)-x86$`, tags.SUSE, false)
	long, err := s.Parse("2.6.2-rev1-build5.1-x86")
	require.NoError(t, err)
	intermediate, _ := long.Intermediate()
	assert.Equal(t, "2.6.2-rev1-x86", intermediate.String())
	assert.Equal(t, "2.6.2-x86", long.Short().String())
	again, err := s.Parse("2.6.2-rev1-x86")
	require.NoError(t, err)
	assert.Equal(t, intermediate, again)
}

func TestSchemesAcceptTheirVersions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern     string
		versions    tags.Versions
		prereleases bool
		from, to    string
		change      tags.Change
		inLine      bool
	}{
		{`^(?P<version>.*)-alpine$`, "", false, "1.27.0-alpine", "1.28.0-alpine", tags.Minor, true},
		{`^(?P<version>.*)-alpine[0-9.]+$`, "", false, "1.27.0-alpine3.19", "1.27.1-alpine3.20", tags.Patch, true},
		{`^(?P<version>.*)-alpine(?P<rev>[0-9.]+)$`, "", false, "1.27.0-alpine3.9", "1.27.0-alpine3.20", tags.Revision, true},
		{`^(?P<version>.*)-alpine[0-9.]+$`, "", false, "1.27.0-alpine3.19", "1.27.0-alpine3.20", tags.Same, true},
		{`^v?(?P<version>.*)$`, "", false, "1.27.0", "v1.27.1", tags.Patch, true},
		{`^(?P<version>.*)$`, "", false, "1.27.0", "v1.27.1", tags.Unrelated, false},
		{`^(?P<version>.*)$`, "", false, "1.27", "1.28.0", tags.Minor, false},
		{`^(?P<version>.*)$`, "", true, "1.27.0", "1.28.0-rc1", tags.Minor, true},
		{`^(?P<version>.*)$`, "", false, "1.27.0", "1.28.0-rc1", tags.Minor, false},
		{`^(?P<version>[0-9.]+)-(?P<pre>[a-z]+)?$`, "", false, "1.27.0-", "1.28.0-x", tags.Minor, false},
		{`^main-[0-9a-f]+-(?P<version>[0-9]+)$`, tags.Numeric, false, "main-1a2b3c4-1700000000", "main-2a2b3c4-1700000001", tags.Major, true},
		{`^r(?P<rev>[0-9]+)-(?P<version>.*)$`, tags.Numeric, false, "r9-1.0", "r10-1.0", tags.Revision, true},
		{"", tags.Semver, false, "1.27.0", "1.27.1", tags.Patch, true},
		{"", tags.Semver, false, "1.27.0-foo", "1.27.0", tags.Patch, true},
		{"", tags.Numeric, false, "1-27", "1-28", tags.Minor, true},
		{"", tags.Numeric, false, "1-2-3-9", "1-2-3-10", tags.Patch, true},
		{"", tags.Calendar, false, "20240115", "20240116", tags.Patch, true},
		{"", tags.Calendar, false, "20240115", "20240201", tags.Minor, true},
		{"", tags.Calendar, false, "20240115", "20250101", tags.Major, true},
		{"", tags.Calendar, false, "202401", "202402", tags.Minor, true},
		{"", tags.Calendar, false, "24.04", "24.10", tags.Minor, true},
		{"", tags.Calendar, false, "2024-01-16T16-07-38Z", "2024-01-16T16-07-39Z", tags.Patch, true},
		{"", "", false, "20240115", "20240116", tags.Major, true},
	} {
		s := newScheme(t, c.pattern, c.versions, c.prereleases)
		from, err := s.Parse(c.from)
		require.NoError(t, err, c.pattern)
		to, err := s.Parse(c.to)
		require.NoError(t, err, c.pattern)
		assert.Equal(t, c.change, tags.ChangeBetween(from, to), "%s %s %s", s, c.from, c.to)
		assert.Equal(t, c.inLine, tags.InLine(from, to), "%s %s %s", s, c.from, c.to)
	}
}

func TestSchemesReject(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern  string
		versions tags.Versions
		text     string
		reason   string
	}{
		{"", tags.SUSE, "1.27.0-alpine", "not SUSE's scheme"},
		{"", tags.Semver, "1.27", "not MAJOR.MINOR.PATCH: 1.27"},
		{"", tags.Semver, "1.27.01", "not MAJOR.MINOR.PATCH: 1.27.01"},
		{"", tags.Semver, "1.27.1-", "not MAJOR.MINOR.PATCH: 1.27.1-"},
		{"", tags.Semver, "1.27.1-rc.01", "not MAJOR.MINOR.PATCH: 1.27.1-rc.01"},
		{"", tags.Semver, "1.27.1-a..b", "not MAJOR.MINOR.PATCH: 1.27.1-a..b"},
		{"", tags.Numeric, "1.27-rc1", "not numbers alone: 1.27-rc1"},
		{"", tags.Numeric, "latest", "not numbers alone: latest"},
		{"", tags.Calendar, "1.27.0", "not a date: 1.27.0"},
		{"", tags.Calendar, "2024.13", "not a date: 2024.13"},
		{"", tags.Calendar, "20240230", "not a date: 20240230"},
		{"", tags.Calendar, "2024", "not a date: 2024"},
		{`^(?P<version>.*)-alpine$`, "", "1.27.0", "the pattern does not match it"},
		{`^(?P<version>.*)-alpine$`, "", "1.27.0-foo-alpine", "not numbers with dots, or a date: 1.27.0-foo"},
		{`^(?P<version>[0-9]*)-alpine$`, "", "-alpine"[1:], "the pattern does not match it"},
		{`^x(?P<version>[0-9]*)$`, "", "x", "the group version of the pattern is empty"},
		{`^(?P<version>[0-9]+)-(?P<rev>.*)$`, "", "1-x", "not a number in a group of the pattern: x"},
		{`^(?P<version>[0-9]+)-(?P<pre>.*)$`, tags.SUSE, "1-x", "a pre-release, which versions: suse does not have"},
		{`^(?P<version>[0-9]+)-(?P<build>.*)$`, tags.SUSE, "1-1", "build without revision"},
		{`^(?P<rev>[0-9]+)-(?P<version>.*)$`, tags.SUSE, "1-1", "not in the order version, revision, build, which versions: suse requires"},
	} {
		tag, err := newScheme(t, c.pattern, c.versions, false).Parse(c.text)
		require.ErrorIs(t, err, tags.ErrUnrecognized, "%s %s", c.pattern, c.text)
		assert.Equal(t, c.reason, tags.Reason(err), "%s %s", c.pattern, c.text)
		assert.True(t, tag.IsZero())
	}
}

func TestPatternsWithoutAnOrder(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"(":                                "missing closing )",
		`^(?P<version>.*)(?!x)$`:           "invalid or unsupported Perl syntax",
		`^.*$`:                             "no group (?P<version>...)",
		`^(.*)-alpine$`:                    "as in ^(?P<version>.*)-alpine$",
		`^(?P<version>.*)-(?P<release>.)$`: `group "release": want one of version, rev, build, pre`,
		`^(?P<version>.*)(?P<version>.*)$`: "group version: twice",
		`.*(?P<version>)`:                  "it matches every tag, and the group version is empty",
		`.*(?P<version>x*)`:                "it matches every tag, and the group version is empty",
		`(?P<version>.*)` + strings.Repeat("x", 242): "257 bytes, want at most 256",
		`(?P<version>.*)(a{1000}){1000}`:             "invalid repeat count",
	} {
		_, err := tags.NewScheme(pattern, "", false)
		require.ErrorContains(t, err, want, pattern)
		require.ErrorContains(t, err, "pattern: ", pattern)
	}
	_, err := tags.NewScheme("", "simver", false)
	require.EqualError(t, err, `versions "simver": want one of semver, numeric, calendar, suse`)
	_, err = tags.NewScheme(`(?P<version>.*)`+strings.Repeat("x", 241), "", false)
	require.NoError(t, err)
}

// anyTag draws tags whose parts collide.
func anyTag() *rapid.Generator[string] {
	part := func(values ...string) *rapid.Generator[string] { return rapid.SampledFrom(values) }
	prefix := part("", "", "", "v", "v", "release-", "RELEASE.", "amd64-")
	version := part("1", "2", "1.2", "1.10", "1.02", "1.2.3", "1.2.10", "2024.01.5", "20240115", "20241016", "2024-01-15", "2024-10-16", "24.04", "1.2.3.4")
	pre := part("", "", "", "-rc1", "-rc.1", "-rc10", "rc2", "-alpha", "-alpha.1", "-beta-2", "-dev", "-dev.3", "a1", "-M1")
	suffix := part("", "", "", "-alpine", "-slim", "-0", "-1", "-10", "-3.36", "-r5", "-r10", "-debian-12-r5", "-rke2r1-build20250910",
		"-rke2r1-build20250911", "-build2021041301", "-ls9", "-ls10", "-20240115", "-alpine3.19", "-alpine3.20", "-rev1", "-rev1-build5.1", "_1", "Z")
	return rapid.Custom(func(t *rapid.T) string {
		return prefix.Draw(t, "prefix") + version.Draw(t, "version") + pre.Draw(t, "pre") + suffix.Draw(t, "suffix")
	})
}

func TestOrderOfEverySchemeIsTotal(t *testing.T) {
	t.Parallel()
	all, text := schemes(t), anyTag()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(all).Draw(t, "scheme")
		checkOrderOf(t, s, text.Draw(t, "a"), text.Draw(t, "b"), text.Draw(t, "c"))
	})
}

// checkOrderOf checks that the order of a scheme is total and that changes and InLine agree with it.
func checkOrderOf(t fataler, s tags.Scheme, textA, textB, textC string) {
	t.Helper()
	a, errA := s.Parse(textA)
	b, errB := s.Parse(textB)
	c, errC := s.Parse(textC)
	if errA != nil || errB != nil || errC != nil {
		return
	}
	order := tags.Compare(a, b)
	if order != -tags.Compare(b, a) || (order == 0) != (textA == textB) {
		t.Fatalf("%v: %s, %s: %d, %d", s, a, b, order, tags.Compare(b, a))
	}
	if order <= 0 && tags.Compare(b, c) <= 0 && tags.Compare(a, c) > 0 {
		t.Fatalf("%v: not transitive: %s, %s, %s", s, a, b, c)
	}
	change := tags.ChangeBetween(a, b)
	switch {
	case change == tags.Unrelated:
		if tags.InLine(a, b) || tags.ChangeBetween(b, a) != tags.Unrelated {
			t.Fatalf("%v: %s, %s: unrelated, and in line", s, a, b)
		}
	case change == tags.Lower && (order <= 0 || tags.ChangeBetween(b, a) <= tags.Same),
		change > tags.Same && (order >= 0 || tags.ChangeBetween(b, a) != tags.Lower),
		change == tags.Same && tags.ChangeBetween(b, a) != tags.Same:
		t.Fatalf("%v: %s to %s: %v, order %d", s, a, b, change, order)
	}
	if tags.InLine(a, b) != (tags.WhyNot(a, b) == "") || tags.InLine(a, b) && s == (tags.Scheme{}) && a.Name() != b.Name() {
		t.Fatalf("%v: %s to %s: %s", s, a, b, tags.WhyNot(a, b))
	}
}

func TestNewestOfEverySchemeStaysInLine(t *testing.T) {
	t.Parallel()
	all, text := schemes(t), rapid.SliceOfN(anyTag(), 1, 12)
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(all).Draw(t, "scheme")
		var list []tags.Tag
		for _, name := range text.Draw(t, "tags") {
			if tag, err := s.Parse(name); err == nil {
				list = append(list, tag)
			}
		}
		if len(list) == 0 {
			return
		}
		for from, largest := list[0], tags.Same; largest <= tags.Major; largest++ {
			newest, ok := tags.Newest(list, from, largest)
			change := tags.ChangeBetween(from, newest)
			if !ok || change < tags.Same || change > largest || tags.Compare(newest, from) < 0 {
				t.Fatalf("%v: %s of %v to %s within %v", s, from, list, newest, largest)
			}
			if s == (tags.Scheme{}) && (newest.Name() != from.Name() || newest.Pre() != "" && from.Pre() == "") {
				t.Fatalf("%s goes to %s", from, newest)
			}
		}
	})
}

// A pattern is only suggested where it orders the tag beside the other settings.
func TestSuggestedPatternsFitTheScheme(t *testing.T) {
	t.Parallel()
	for versions, want := range map[tags.Versions]string{tags.AnyVersions: "^v?(?P<version>.*)$", tags.Calendar: ""} {
		s, err := tags.NewScheme("", versions, false)
		require.NoError(t, err)
		explained := s.Explain("20240101", "v99999999")
		require.Len(t, explained.Tags, 1)
		assert.Empty(t, explained.Tags[0].Updates)
		assert.Equal(t, want, explained.Tags[0].Pattern, versions)
		follow, err := s.Parse("20240101")
		require.NoError(t, err)
		newer := tags.FindNotUnderstood([]string{"v99999999"}, follow, s, 1)
		require.Len(t, newer, 1)
		assert.Equal(t, want, newer[0].Pattern, versions)
	}
}
