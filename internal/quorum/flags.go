// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/agent/node"
)

// flags are the flags of a program, without dashes.
type flags map[string]string

// list returns the parts of a value with commas.
func (f flags) list(name string) []string {
	return strings.FieldsFunc(f[name], func(r rune) bool { return r == ',' })
}

// podSpec is a pod manifest, as far as it is read.
type podSpec struct {
	Metadata struct {
		Name string `yaml:"name"`
	} `yaml:"metadata"`
	Spec struct {
		Containers []struct {
			Name    string   `yaml:"name"`
			Command []string `yaml:"command"`
			Args    []string `yaml:"args"`
		} `yaml:"containers"`
	} `yaml:"spec"`
}

// flagsOf returns the flags of the container that is named as its pod; nil: there is no such pod.
func flagsOf(files []node.PodFile, pod string) flags {
	for _, file := range files {
		var spec podSpec
		if yaml.Unmarshal(file.Data, &spec) != nil || spec.Metadata.Name != pod {
			continue // what cannot be read is reported by the cycle
		}
		for _, c := range spec.Spec.Containers {
			if c.Name == pod || len(spec.Spec.Containers) == 1 {
				return parseFlags(append(c.Command, c.Args...))
			}
		}
	}
	return nil
}

// parseFlags reads --name=value and --name value.
func parseFlags(words []string) flags {
	out := flags{}
	for n, word := range words {
		name, is := strings.CutPrefix(word, "--")
		if !is {
			continue
		}
		name, value, joined := strings.Cut(name, "=")
		if !joined && n+1 < len(words) && !strings.HasPrefix(words[n+1], "-") {
			value = words[n+1]
		}
		out[name] = value
	}
	return out
}
