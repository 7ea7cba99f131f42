// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	slashed "path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

func TestTheMostSpecificMatchWins(t *testing.T) {
	t.Parallel()
	numeric, err := tags.NewScheme("", tags.Numeric, false)
	require.NoError(t, err)
	alpine, err := tags.NewScheme("^(?P<version>.*)-alpine$", tags.AnyVersions, false)
	require.NoError(t, err)
	policies := map[string]policy.Rule{
		"registry.suse.com/caasp/v4/velum":       {Updates: tags.Minor, Scheme: alpine},
		"registry.suse.com/caasp/v4/etcd":        {Updates: tags.Patch, Scheme: tags.SUSEOnly()},
		"registry.suse.com/caasp/v4.5/etcd":      {Updates: tags.Rebuild, Scheme: numeric},
		"registry.suse.com/other":                {Updates: tags.Rebuild, Scheme: numeric},
		"registry.suse.com.evil.example/other":   {Updates: tags.Same, Scheme: numeric},
		"quay.io/coreos/etcd":                    {Updates: tags.Same, Scheme: numeric},
		"sles12/velum":                           {Updates: tags.Major, Scheme: numeric},
		"docker.io/sles12/velum":                 {Updates: tags.Major, Scheme: numeric},
		"docker.io/sles12/deep/velum":            {Updates: tags.Major, Scheme: numeric},
		"mariadb":                                {Updates: tags.Revision, Scheme: numeric},
		"docker.io/library/mariadb":              {Updates: tags.Revision, Scheme: numeric},
		"docker.io/someone/mariadb":              {Updates: tags.Patch, Scheme: numeric},
		"registry.suse.com/caasp/v4/velum/child": {Updates: tags.Patch, Scheme: tags.SUSEOnly()},
	}
	forward := `repositories:
- {match: '*', updates: none, tags: {versions: numeric}}
- {match: 'registry.suse.com/*', updates: rebuild}
- {match: 'registry.suse.com/caasp/v4/*', updates: patch, tags: {versions: suse}}
- {match: registry.suse.com/caasp/v4/velum, updates: minor, tags: {pattern: '^(?P<version>.*)-alpine$'}}
- {match: 'docker.io/*', updates: patch}
- {match: 'sles12/*', updates: major}
- {match: mariadb, updates: revision}
`
	s := readPolicies(t, forward)
	for repository, want := range policies {
		assert.Equal(t, want, ruleOf(s, repository), repository)
	}
	rapid.Check(t, func(t *rapid.T) {
		shuffled := Settings{Repositories: rapid.Permutation(s.Repositories).Draw(t, "order")}
		for repository, want := range policies {
			require.Equal(t, want, ruleOf(shuffled, repository), "the order does not count: %s", repository)
		}
	})
}

func TestWithoutAnEntryARevisionIsTheLargestChange(t *testing.T) {
	t.Parallel()
	assert.Equal(t, policy.Rule{Updates: tags.Revision}, ruleOf(Settings{}, "a/b"))
	assert.Equal(t, policy.Rule{Updates: tags.Revision}, ruleOf(Settings{}, "not a repository"))
}

// readPolicies returns the policies of a file.
func readPolicies(t *testing.T, text string) Settings {
	t.Helper()
	c, err := read("x", "", text)
	require.NoError(t, err)
	return c.Settings
}

func TestEachFieldComesFromTheMostSpecificEntryThatWritesIt(t *testing.T) {
	t.Parallel()
	s := readPolicies(t, `repositories:
- {match: quay.io/own/image, updates: minor}
- {match: 'quay.io/own/*', hold: own, allow: [], deny: [], max: 4.1-rev2, older: false}
- {match: 'quay.io/*', follow: "5", deny: [b, c], hold: all of quay, until: 2026-12-24T00:00:00Z, older: true}
- {match: '*', follow: "4", allow: [4.*], deny: [a], max: 4, hold: all, until: 2026-12-31}
`)
	end := time.Date(2026, time.December, 24, 0, 0, 0, 0, time.UTC)
	core := func(text string) tags.Tag { tag, err := tags.Parse(text); require.NoError(t, err); return tag }
	assert.Equal(t, policy.Rule{
		Follow: "5", Updates: tags.Minor, Allow: []string{}, Deny: []string{}, Max: core("4.1-rev2"), Hold: "own",
	}, ruleOf(s, "quay.io/own/image"), "a list without items was written, and a hold brings its own end: none")
	assert.Equal(t, policy.Rule{
		Follow: "5", Updates: tags.Revision, Allow: []string{"4.*"}, Deny: []string{"b", "c"}, Max: core("4"), Older: true,
		Hold: "all of quay", HoldUntil: end,
	}, ruleOf(s, "quay.io/other"))
	assert.Equal(t, policy.Rule{
		Follow: "4", Updates: tags.Revision, Allow: []string{"4.*"}, Deny: []string{"a"}, Max: core("4"), Hold: "all",
		HoldUntil: time.Date(2026, time.December, 31, 0, 0, 0, 0, time.Local),
	}, ruleOf(s, "docker.io/a/b"))
}

func TestLaterSpellingOfARepositoryWins(t *testing.T) {
	t.Parallel()
	s := readPolicies(t, "repositories: [{match: docker.io/library/mariadb, follow: a}, {match: mariadb, follow: b}]\n")
	assert.Equal(t, "b", ruleOf(s, "mariadb").Follow)
}

// TestAcceptedPatternsMatchWithoutError: a pattern that path.Match would find malformed for some tag is rejected
// with its line.
func TestAcceptedPatternsMatchWithoutError(t *testing.T) {
	t.Parallel()
	text := rapid.StringMatching(`[a-b0-1.*?\[\]^\\!{-]{0,12}`)
	name := rapid.StringMatching(`[a-b0-1._-]{1,6}`)
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		text, name := text.Draw(t, "pattern"), name.Draw(t, "tag")
		if tagPattern(text) != nil {
			return
		}
		taken++
		_, err := slashed.Match(text, name)
		require.NoError(t, err)
		require.NotEmpty(t, text)
	})
	assert.Positive(t, taken)
	rapid.Check(t, func(t *rapid.T) {
		name := name.Draw(t, "tag")
		require.NoError(t, tagPattern(name), "a tag is a pattern of itself")
		itself, err := slashed.Match(name, name)
		require.NoError(t, err)
		require.True(t, itself)
	})
}

func TestNumbersAtTheirBounds(t *testing.T) {
	t.Parallel()
	for key, ends := range map[string]struct{ least, most int }{
		"requestsPerHour": {0, 36_000_000}, "connectionsPerHost": {4, 64},
	} {
		for n, right := range map[int]bool{ends.least: true, ends.most: true, ends.least - 1: false, ends.most + 1: false} {
			_, err := read("x", "", fmt.Sprintf("%s: %d\nstaging: {layers: 1}\n", key, n))
			assert.Equal(t, right, err == nil, "%s: %d: %v", key, n, err)
		}
	}
}

func TestLengthsOfTexts(t *testing.T) {
	t.Parallel()
	assert.NoError(t, CheckReason(strings.Repeat("x", 200)))
	assert.ErrorContains(t, CheckReason(strings.Repeat("x", 201)), "201 bytes, want at most 200")
	for _, check := range []func(string) error{tagPattern, filePattern} {
		assert.NoError(t, check(strings.Repeat("x", 256)))
		assert.Error(t, check(strings.Repeat("x", 257)))
	}
}

// ruleOf returns the rule of a repository by its usual spelling.
func ruleOf(s Settings, repository string) policy.Rule {
	if name, err := release.NormalizeRepository(repository); err == nil {
		repository = name
	}
	return s.Rules()(repository)
}
