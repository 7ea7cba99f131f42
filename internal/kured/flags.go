// SPDX-License-Identifier: Apache-2.0

package kured

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/lazyregexp"
)

// container is a container of the DaemonSet's pods.
type container struct {
	Name    string            `json:"name"`
	Command []string          `json:"command"`
	Args    []string          `json:"args"`
	Env     []variable        `json:"env"`
	EnvFrom []json.RawMessage `json:"envFrom"`
}

// variable is an environment variable of a container.
type variable struct {
	Name      string          `json:"name"`
	Value     string          `json:"value"`
	ValueFrom json.RawMessage `json:"valueFrom"`
}

// containersOfKured returns the container named kured, as kured's manifest and chart name it; without one, all.
func containersOfKured(all []container) []container {
	if at := slices.IndexFunc(all, func(c container) bool { return c.Name == "kured" }); at >= 0 {
		return all[at : at+1]
	}
	return all
}

// annotationOf returns the annotation of a DaemonSet (NAMESPACE/NAME) that the containers of kured use. It is an error
// if that is not certain, or if they use another DaemonSet.
func annotationOf(containers []container, set string) (string, error) {
	const flag = "lock-annotation"
	found := ""
	for _, c := range containersOfKured(containers) {
		if other := c.lockedSet(set); other != set {
			return "", fmt.Errorf("kured's lock is in %s (--ds-namespace, --ds-name): set apply.kured to it", other)
		}
		name, err := c.setting(flag)
		switch {
		case err != nil:
			return "", err
		case name == "" && len(c.EnvFrom) > 0:
			return "", fmt.Errorf("envFrom of container %.63q may set %s: give --%s in args", c.Name, variableOf(flag), flag)
		case found != "" && name != "" && name != found:
			return "", fmt.Errorf("two containers have different --%s: %s and %s", flag, found, name)
		case name != "":
			found = name
		}
	}
	return cmp.Or(found, annotation), nil
}

// lockedSet returns the DaemonSet that has the lock of a kured in set. A namespace or name that cannot be read is that
// of set.
func (c container) lockedSet(set string) string {
	namespace, name, _ := strings.Cut(set, "/")
	if is, err := c.setting("ds-namespace"); err == nil && is != "" {
		namespace = is
	}
	if is, err := c.setting("ds-name"); err == nil && is != "" {
		name = is
	}
	return namespace + "/" + name
}

// variableOf returns the environment variable that kured reads for a flag.
func variableOf(flag string) string {
	return "KURED_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// keyName matches the key of an annotation, and the name of an object.
var keyName = lazyregexp.New(`^([a-zA-Z0-9][-a-zA-Z0-9.]{0,252}/)?[a-zA-Z0-9]([-_.a-zA-Z0-9]{0,251}[a-zA-Z0-9])?$`)

// setting returns the value of a flag of kured, or of its environment variable; empty if neither is set. If they
// differ, it depends on kured's version which one it uses.
func (c container) setting(flag string) (string, error) {
	value, err := flagOf(append(slices.Clone(c.Command), c.Args...), flag)
	if err != nil {
		return "", err
	}
	for _, v := range c.Env {
		switch {
		case v.Name != variableOf(flag):
		case len(v.ValueFrom) > 0 && string(v.ValueFrom) != "null":
			return "", fmt.Errorf("%s is not a plain value", v.Name)
		case !keyName().MatchString(v.Value):
			return "", fmt.Errorf("%s: %.64q is not a name", v.Name, v.Value)
		case value != "" && value != v.Value:
			return "", fmt.Errorf("--%s is %s, but %s is %s", flag, value, v.Name, v.Value)
		default:
			value = v.Value
		}
	}
	return value, nil
}

// flagOf returns the value of a flag in a command line, the last one if it is given twice; empty if it is not given. It
// is an error if a shell, or Kubernetes with $(NAME), makes the value.
func flagOf(words []string, flag string) (string, error) {
	value, option := "", "--"+flag
	for n := 0; n < len(words); n++ {
		word := words[n]
		given, is, hasValue := strings.Cut(word, "=")
		switch {
		case given == option && hasValue:
			value = is
		case given == option && n+1 < len(words):
			n++
			value = words[n]
		case given == option:
			return "", errors.New(option + " has no value")
		case !strings.HasPrefix(word, "--") && mentions(word, flag):
			return "", fmt.Errorf("cannot read %s in %.64q", option, word)
		default:
			continue
		}
		if !keyName().MatchString(value) {
			return "", fmt.Errorf("%s: %.64q is not a name", option, value)
		}
	}
	return value, nil
}

// mentions reports whether a word, such as a script for a shell, may set a flag or its environment variable.
func mentions(word, flag string) bool {
	return strings.Contains(word, "-"+flag) || strings.Contains(word, variableOf(flag))
}
