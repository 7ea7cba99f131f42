// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
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

// TagScheme has the settings for reading the tags of repositories. It applies as a whole.
type TagScheme struct {
	Pattern     string `yaml:"pattern,omitempty" is:"tagregexp"`
	Versions    string `yaml:"versions,omitempty" is:"oneof semver numeric calendar suse"`
	Prereleases bool   `yaml:"prereleases,omitempty" is:"bool true false"`
}

// fitScheme creates the scheme of an entry, once, and parses its release with it. A limit may be only the version,
// without the text that the pattern requires around it.
func (w *walker) fitScheme(path string, r *Repository, written *yaml.Node) {
	var scheme tags.Scheme
	if lookup(written, "tags") != nil {
		var err error
		scheme, err = tags.NewScheme(r.Tags.Pattern, tags.Versions(r.Tags.Versions), r.Tags.Prereleases)
		if err != nil {
			w.report(lookup(written, "tags").Line, path+".tags", "%w", err)
			return
		}
		r.Scheme = &scheme
	}
	most := lookup(written, "max")
	if most == nil {
		return
	}
	var err error
	if r.Max, err = scheme.Parse(most.Value); err != nil {
		r.Max, err = tags.Parse(most.Value)
	}
	if err != nil {
		w.report(most.Line, path+".max", "%.200q: want a release, such as 4.1 or 4.1.2", most.Value)
	}
}

func tagRegexp(text string) error {
	_, err := tags.NewScheme(text, tags.AnyVersions, false)
	if text == "" {
		return errors.New("want a regular expression with a group (?P<version>...)")
	}
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "pattern: ")) // the key says it
	}
	return nil
}

// retired returns the key, or the value of one, that was removed, and what to write instead; "" if it never existed.
func retired(path, value string) (gone, instead string) {
	switch path {
	case "apply.lock.etcd":
		return path, "want apply.lock.lease: docs/fleets.md has a Role for nodes without a kubeconfig"
	case "apply.kured":
		return path, "have kured watch the alert ImageUpdateApplying: see docs/fleets.md#reboots"
	case "hooks.webhooks.format":
		if value == "teams" || value == "matrix" {
			return path + ": " + value, "want hooks.exec with a program that sends it: docs/hooks.md"
		}
	case "repositories.dialect":
		return path, withoutDialect(value)
	}
	return "", ""
}

// withoutDialect returns what to write instead of a dialect.
func withoutDialect(value string) string {
	forms := map[string]string{
		"hyphen":      `^(?P<version>v?[0-9.]+)(-(?P<rev>[0-9]+)(\.(?P<build>[0-9.]+))?)?$`,
		"hyphen-dash": `^(?P<version>v?[0-9.]+)(-(?P<rev>[0-9]+)(-(?P<build>[0-9.]+))?)?$`,
		"short-b":     `^(?P<version>v?[0-9.]+)(-rev(?P<rev>[0-9]+)(-b(?P<build>[0-9.]+))?)?$`,
	}
	if pattern := forms[value]; pattern != "" {
		return fmt.Sprintf("want tags: {versions: suse, pattern: '%s'}", pattern)
	}
	return "remove it: the agent reads such tags without it, and others with tags.pattern"
}
