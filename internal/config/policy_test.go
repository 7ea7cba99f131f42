// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/tags"
)

// policies are repositories and what the file below says about them.
var policies = map[string]RepositoryPolicy{
	"registry.suse.com/caasp/v4/velum":       {tags.Minor, tags.Hyphen},
	"registry.suse.com/caasp/v4/etcd":        {tags.Patch, tags.Core},
	"registry.suse.com/caasp/v4.5/etcd":      {tags.Rebuild, tags.Plus},
	"registry.suse.com/other":                {tags.Rebuild, tags.Plus},
	"registry.suse.com.evil.example/other":   {tags.Same, tags.Plus},
	"quay.io/coreos/etcd":                    {tags.Same, tags.Plus},
	"sles12/velum":                           {tags.Major, tags.Plus},
	"docker.io/sles12/velum":                 {tags.Major, tags.Plus},
	"docker.io/sles12/deep/velum":            {tags.Major, tags.Plus},
	"mariadb":                                {tags.Revision, tags.Plus},
	"docker.io/library/mariadb":              {tags.Revision, tags.Plus},
	"docker.io/someone/mariadb":              {tags.Patch, tags.Plus},
	"registry.suse.com/caasp/v4/velum/child": {tags.Patch, tags.Core},
}

func TestTheMostSpecificMatchWins(t *testing.T) {
	t.Parallel()
	forward := `repositories:
- {match: '*', updates: none, dialect: plus}
- {match: 'registry.suse.com/*', updates: rebuild}
- {match: 'registry.suse.com/caasp/v4/*', updates: patch, dialect: core}
- {match: registry.suse.com/caasp/v4/velum, updates: minor, dialect: hyphen}
- {match: 'docker.io/*', updates: patch}
- {match: 'sles12/*', updates: major}
- {match: mariadb, updates: revision}
`
	f, err := parse("x", []byte(forward))
	require.NoError(t, err)
	s, err := settings(merge(defaults(), f), "")
	require.NoError(t, err)
	for repository, want := range policies {
		assert.Equal(t, want, s.Policy(repository), repository)
	}
	rapid.Check(t, func(t *rapid.T) {
		shuffled := Settings{Repositories: rapid.Permutation(s.Repositories).Draw(t, "order")}
		for repository, want := range policies {
			require.Equal(t, want, shuffled.Policy(repository), "the order does not count: %s", repository)
		}
	})
}

func TestWithoutAnEntryARevisionIsTheLargestChange(t *testing.T) {
	t.Parallel()
	assert.Equal(t, RepositoryPolicy{Updates: tags.Revision, Dialect: tags.Core}, Settings{}.Policy("a/b"))
	assert.Equal(t, RepositoryPolicy{Updates: tags.Revision}, Settings{}.Policy("not a repository"))
}
