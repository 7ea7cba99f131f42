// SPDX-License-Identifier: Apache-2.0

package config

import (
	"math"
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
	Dialect    *tags.Dialect `yaml:"dialect,omitempty" is:"dialect"`
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

// Rules returns the rule of each repository, whose name is normalised as in CRI. Each of its fields comes from the most
// specific entry that writes it: the repository's own, then the longest prefix, then "*"; of two spellings of one
// repository, the later. A hold has its end from its own entry. Where nothing is written, only releases of the same
// application version are offered, as the pod manifests were tested with.
func (s Settings) Rules() func(repository string) policy.Rule {
	var patterns []pattern
	for _, entry := range s.Repositories {
		if p, ok := patternOf(entry.Match); ok {
			p.entry = entry
			patterns = append(patterns, p)
		}
	}
	slices.SortStableFunc(patterns, func(a, b pattern) int { return a.specificity() - b.specificity() })
	return func(repository string) policy.Rule {
		rule := policy.Rule{Updates: tags.Revision, Dialect: tags.Core}
		for _, p := range patterns {
			if repository == p.name || p.isPrefix && strings.HasPrefix(repository, p.name) {
				p.entry.over(&rule)
			}
		}
		return rule
	}
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

// pattern is an entry with the normalised name that it matches, or the prefix of names.
type pattern struct {
	name     string
	isPrefix bool
	entry    Repository
}

func (p pattern) specificity() int {
	if p.isPrefix {
		return len(p.name)
	}
	return math.MaxInt
}

// patternOf normalises what an entry matches; false: no repository.
func patternOf(match string) (pattern, bool) {
	if match == anywhere {
		return pattern{isPrefix: true}, true
	}
	name, isPrefix := strings.CutSuffix(match, "*")
	if !isPrefix {
		full, err := release.NormalizeRepository(name)
		return pattern{name: full}, err == nil
	}
	// Two names behind the prefix: "docker.io/x" alone would be "library/x".
	full, err := release.NormalizeRepository(name + "x/x")
	return pattern{name: strings.TrimSuffix(full, "x/x"), isPrefix: true}, err == nil
}
