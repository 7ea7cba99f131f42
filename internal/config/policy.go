// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/tags"
)

// defaultUpdates is the largest change that is offered where nothing is
// written: the same application version, as the pod manifests were tested with.
const defaultUpdates = tags.Revision

// Repository is what is written about the repositories that Match names: one,
// all below a prefix ("prefix/*"), or all ("*"). What is nil or zero is not
// written there; a list without items is.
type Repository struct {
	Match   string
	Follow  string
	Updates *tags.Change
	Dialect *tags.Dialect
	Allow   []string
	Deny    []string
	Max     tags.Tag
	Older   *bool
	// Signatures is "require", "warn" or "off"; empty: not written.
	Signatures string
	Hold       string
	HoldUntil  time.Time
}

// Policy gives the policy of a repository. Each of its fields comes from the
// most specific entry that writes it: the repository's own, then the longest
// prefix, then "*"; of two spellings of one repository, the later. A hold has its
// end from its own entry. Names are compared as CRI normalises them.
func (s Settings) Policy(repository string) agent.Rule {
	policy := agent.Rule{Updates: defaultUpdates, Dialect: tags.Core}
	name, err := agent.NormalizeRepository(repository)
	if err != nil {
		name = repository
	}
	for _, entry := range mostSpecificLast(s.Repositories, name) {
		entry.over(&policy)
	}
	return policy
}

// mostSpecificLast gives the entries that name a repository.
func mostSpecificLast(all []Repository, name string) []Repository {
	var found []Repository
	for _, entry := range all {
		if specificity(entry.Match, name) >= 0 {
			found = append(found, entry)
		}
	}
	slices.SortStableFunc(found, func(a, b Repository) int {
		return cmp.Compare(specificity(a.Match, name), specificity(b.Match, name))
	})
	return found
}

// over lays what is written over the policy.
func (r Repository) over(policy *agent.Rule) {
	if r.Follow != "" {
		policy.Follow = r.Follow
	}
	if r.Updates != nil {
		policy.Updates = *r.Updates
	}
	if r.Dialect != nil {
		policy.Dialect = *r.Dialect
	}
	if r.Allow != nil {
		policy.Allow = r.Allow
	}
	if r.Deny != nil {
		policy.Deny = r.Deny
	}
	if !r.Max.IsZero() {
		policy.Max = r.Max
	}
	if r.Older != nil {
		policy.Older = *r.Older
	}
	if r.Signatures != "" {
		policy.Signatures = agent.Signatures(r.Signatures)
	}
	if r.Hold != "" {
		policy.Hold, policy.HoldUntil = r.Hold, r.HoldUntil
	}
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

func (r *reader) repositories(key string) []Repository {
	var found []Repository
	for _, item := range r.merged[key].list {
		found = append(found, r.repository(item.named, key))
	}
	return found
}

func (r *reader) repository(entry map[string]input, key string) Repository {
	found := Repository{Match: entry["match"].text, Follow: entry["follow"].text, Hold: entry["hold"].text}
	if in, there := entry["updates"]; there {
		change, err := tags.ParseChange(in.text)
		r.check(in, key, err)
		found.Updates = &change
	}
	if in, there := entry["dialect"]; there {
		dialect, err := tags.ParseDialect(in.text)
		r.check(in, key, err)
		found.Dialect = &dialect
	}
	if in, there := entry["allow"]; there {
		found.Allow = in.texts()
	}
	if in, there := entry["deny"]; there {
		found.Deny = in.texts()
	}
	if in, there := entry["max"]; there {
		var err error
		found.Max, err = parseMax(in.text, entry["dialect"].text)
		r.check(in, key, err)
	}
	found.Signatures = entry["signatures"].text
	if in, there := entry["older"]; there {
		older := in.text == "true"
		found.Older = &older
	}
	if in, there := entry["until"]; there {
		var err error
		found.HoldUntil, err = ParseTime(in.text)
		r.check(in, key, err)
	}
	return found
}
