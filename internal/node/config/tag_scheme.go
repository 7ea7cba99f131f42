// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/tags"
)

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
		return path, "give kured the alert ImageUpdateApplying: docs/fleets.md#reboots"
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
