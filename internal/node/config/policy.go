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

// Repository has the settings for the repositories that Match names: one, all below a prefix ("prefix/*"), or all
// ("*"). A nil or zero field is not set; an empty list is.
type Repository struct {
	Match      string       `yaml:"match" is:"match"`
	Follow     string       `yaml:"follow,omitempty" is:"tag"`
	Updates    *tags.Change `yaml:"updates,omitempty" is:"updates none rebuild revision patch minor major"`
	Tags       TagScheme    `yaml:"tags,omitempty"`
	Allow      []string     `yaml:"allow,omitempty" is:"tagpattern"`
	Deny       []string     `yaml:"deny,omitempty" is:"denial"`
	Max        tags.Tag     `yaml:"max,omitempty" is:"max"`
	Older      *bool        `yaml:"older,omitempty" is:"bool true false"`
	Signatures string       `yaml:"signatures,omitempty" is:"oneof require warn off"`
	Hold       string       `yaml:"hold,omitempty" is:"reason"`
	HoldUntil  time.Time    `yaml:"until,omitempty" is:"time"`
	Scheme     *tags.Scheme // of Tags; nil if they are not set
}

// fit checks the settings of an entry together: a release is parsed with the scheme of its tags, and an end needs a
// hold.
func (w *walker) fit(path string, r *Repository, written *yaml.Node) {
	if until := lookup(written, "until"); until != nil && r.Hold == "" {
		w.report(until.Line, path+".until", "%q: want hold and until, or neither", until.Value)
	}
	w.fitScheme(path, r, written)
}

// Rules returns the rule of each repository, by its normalised name as in CRI. Each field of a rule comes from the most
// specific entry that sets it: the repository's own, then the longest prefix, then "*"; of two spellings of one
// repository, the later. A hold has its end from the same entry. Without any entry, only releases of the same
// application version are offered, because the pod manifests were tested with that.
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
		rule := policy.Rule{Updates: tags.Revision}
		for _, p := range patterns {
			if repository == p.name || p.isPrefix && strings.HasPrefix(repository, p.name) {
				p.entry.over(&rule)
			}
		}
		return rule
	}
}

// over applies the set fields to the policy.
func (r Repository) over(policy *policy.Rule) {
	for f, written := range reflect.ValueOf(r).Fields() {
		if dst := reflect.ValueOf(policy).Elem().FieldByName(f.Name); dst.IsValid() && !written.IsZero() {
			dst.Set(reflect.Indirect(written).Convert(dst.Type()))
		}
	}
	if r.Hold != "" {
		policy.HoldUntil = r.HoldUntil // also if it has no end
	}
}

// pattern is an entry with the normalised name or prefix that it matches.
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

// patternOf normalises the match of an entry; false if it is not a repository.
func patternOf(match string) (pattern, bool) {
	if match == anywhere {
		return pattern{isPrefix: true}, true
	}
	name, isPrefix := strings.CutSuffix(match, "*")
	if !isPrefix {
		full, err := release.NormalizeRepository(name)
		return pattern{name: full}, err == nil
	}
	// Two components after the prefix: "docker.io/x" alone would become "library/x".
	full, err := release.NormalizeRepository(name + "x/x")
	return pattern{name: strings.TrimSuffix(full, "x/x"), isPrefix: true}, err == nil
}
