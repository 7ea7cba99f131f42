// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/tags"
)

// defaultUpdates is the largest change that is offered where nothing is
// written: the same application version, as the pod manifests were tested with.
const defaultUpdates = tags.Revision

// Repository is what is written about the repositories that Match names: one,
// all below a prefix ("prefix/*"), or all ("*").
type Repository struct {
	Match   string
	Updates *tags.Change  // nil: not written here
	Dialect *tags.Dialect // nil: not written here
}

// RepositoryPolicy is what may be offered for one repository, and how its tags
// are spelt.
type RepositoryPolicy struct {
	Updates tags.Change  // the largest change
	Dialect tags.Dialect // core where nothing is written
}

// Policy gives the policy of a repository. Each of its fields comes from the
// most specific entry that writes it: the repository's own, then the longest
// prefix, then "*". Names are compared as CRI normalises them.
func (s Settings) Policy(repository string) RepositoryPolicy {
	policy := RepositoryPolicy{Updates: defaultUpdates, Dialect: tags.Core}
	name, err := agent.NormalizeRepository(repository)
	if err != nil {
		name = repository
	}
	updates, dialect := -1, -1
	for _, entry := range s.Repositories {
		rank := specificity(entry.Match, name)
		if entry.Updates != nil && rank > updates {
			policy.Updates, updates = *entry.Updates, rank
		}
		if entry.Dialect != nil && rank > dialect {
			policy.Dialect, dialect = *entry.Dialect, rank
		}
	}
	return policy
}

// exact is above the length of every prefix.
const exact = 1 << 20

// specificity ranks how closely a pattern names a normalised repository; -1:
// it does not.
func specificity(pattern, name string) int {
	if pattern == anywhere {
		return 0
	}
	below, isPrefix := strings.CutSuffix(pattern, "/*")
	if !isPrefix {
		if own, err := agent.NormalizeRepository(pattern); err == nil && own == name {
			return exact
		}
		return -1
	}
	// Two names behind the prefix: "docker.io/x" alone would be "library/x".
	full, err := agent.NormalizeRepository(below + "/x/x")
	if err != nil {
		return -1
	}
	full = strings.TrimSuffix(full, "x/x")
	if strings.HasPrefix(name, full) {
		return len(full)
	}
	return -1
}
