// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

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
	Older      *bool         `yaml:"older,omitempty" is:"bool true false"`
	Signatures string        `yaml:"signatures,omitempty" is:"oneof require warn off"`
	Hold       string        `yaml:"hold,omitempty" is:"reason"`
	HoldUntil  time.Time     `yaml:"until,omitempty" is:"time"`
}

// fit holds an entry together: a release is read in the dialect of its tags, and without a hold nothing ends.
func (w *walker) fit(path string, r *Repository, written *yaml.Node) {
	if until := lookup(written, "until"); until != nil && r.Hold == "" {
		w.report(until.Line, path+".until", "%q: without hold, want both or none", until.Value)
	}
	most, dialect := lookup(written, "max"), tags.Core
	if most == nil {
		return
	}
	if r.Dialect != nil {
		dialect = *r.Dialect
	}
	var err error
	if r.Max, err = dialect.Parse(most.Value); err != nil {
		w.report(most.Line, path+".max", "%.200q: want a release in the dialect %s, such as 4.1 or 4.1.2",
			most.Value, dialect)
	}
}

// Policy gives the policy of a repository. Each of its fields comes from the most specific entry that writes it: the
// repository's own, then the longest prefix, then "*"; of two spellings of one repository, the later. A hold has its
// end from its own entry. Names are compared as CRI normalises them. Where nothing is written, what is offered is of
// the same application version, as the pod manifests were tested with.
func (s Settings) Policy(repository string) policy.Rule {
	policy := policy.Rule{Updates: tags.Revision, Dialect: tags.Core}
	name, err := release.NormalizeRepository(repository)
	if err != nil {
		name = repository
	}
	entries := slices.SortedStableFunc(slices.Values(s.Repositories), func(a, b Repository) int {
		return specificity(a.Match, name) - specificity(b.Match, name)
	})
	for _, entry := range entries {
		if specificity(entry.Match, name) != noMatch {
			entry.over(&policy)
		}
	}
	return policy
}

// over lays what is written over the policy.
func (r Repository) over(policy *policy.Rule) {
	for f, written := range reflect.ValueOf(r).Fields() {
		if dst := reflect.ValueOf(policy).Elem().FieldByName(f.Name); dst.IsValid() && !written.IsZero() {
			dst.Set(reflect.Indirect(written).Convert(dst.Type()))
		}
	}
	if r.Hold != "" {
		policy.HoldUntil = r.HoldUntil // also where it has no end
	}
}

// Ranks of patterns beside the length of a prefix.
const (
	noMatch = -1
	exact   = 1 << 20
)

// specificity ranks how closely a pattern names a normalised repository.
func specificity(pattern, name string) int {
	if pattern == anywhere {
		return 0
	}
	below, isPrefix := strings.CutSuffix(pattern, "*")
	if isPrefix {
		below += "x/x" // two names behind the prefix: "docker.io/x" alone would be "library/x"
	}
	full, err := release.NormalizeRepository(below)
	prefix := strings.TrimSuffix(full, "x/x")
	switch {
	case err == nil && !isPrefix && full == name:
		return exact
	case err == nil && isPrefix && strings.HasPrefix(name, prefix):
		return len(prefix)
	}
	return noMatch
}
