// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/tags"
)

// defaultUpdates is the largest change that is offered where nothing is written: the same application version, as the
// pod manifests were tested with.
const defaultUpdates = tags.Revision

// Repository is what is written about the repositories that Match names: one, all below a prefix ("prefix/*"), or all
// ("*"). What is nil or zero is not written there; a list without items is.
type Repository struct {
	Match      string        `yaml:"match" is:"match"`
	Follow     string        `yaml:"follow,omitempty" is:"tag"`
	Updates    *tags.Change  `yaml:"updates,omitempty" is:"updates none rebuild revision patch minor major"`
	Dialect    *tags.Dialect `yaml:"dialect,omitempty" is:"dialect core hyphen hyphen-dash short-b plus"`
	Allow      []string      `yaml:"allow,omitempty" is:"tagpattern"`
	Deny       []string      `yaml:"deny,omitempty" is:"denial"`
	Max        tags.Tag      `yaml:"max,omitempty" is:"max"`
	Older      *bool         `yaml:"older,omitempty" is:"bool"`
	Signatures string        `yaml:"signatures,omitempty" is:"oneof require warn off"`
	Hold       string        `yaml:"hold,omitempty" is:"reason"`
	HoldUntil  time.Time     `yaml:"until,omitempty" is:"time"`
}

// fit holds an entry together: a release is read in the dialect of its tags, and without a hold nothing ends.
func (w *walker) fit(path string, r *Repository, written *yaml.Node) {
	report := func(key, want string) {
		in := lookup(written, key)
		w.report(in.Line, "%s.%s: %.200q: %s", path, key, in.Value, want)
	}
	if !r.HoldUntil.IsZero() && r.Hold == "" {
		report("until", "without hold, want both or none")
	}
	most := lookup(written, "max")
	if most == nil {
		return
	}
	dialect := tags.Core
	if r.Dialect != nil {
		dialect = *r.Dialect
	}
	var err error
	if r.Max, err = dialect.Parse(most.Value); err != nil {
		report("max", fmt.Sprintf("want a release in the dialect %s, such as 4.1 or 4.1.2", dialect))
	}
}

// Policy gives the policy of a repository. Each of its fields comes from the most specific entry that writes it: the
// repository's own, then the longest prefix, then "*"; of two spellings of one repository, the later. A hold has its
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
	to := reflect.ValueOf(policy).Elem()
	for f, written := range reflect.ValueOf(r).Fields() {
		if written.IsZero() || f.Name == "Match" {
			continue
		}
		dst := to.FieldByName(f.Name)
		dst.Set(reflect.Indirect(written).Convert(dst.Type()))
	}
	if r.Hold != "" {
		policy.HoldUntil = r.HoldUntil // also where it has no end
	}
}

// exact is above the length of every prefix.
const exact = 1 << 20

// specificity ranks how closely a pattern names a normalised repository; -1: it does not.
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
