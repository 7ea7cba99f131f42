// SPDX-License-Identifier: Apache-2.0

// Package argv reads the flags of other programs from their command lines: of kubelet, the distributions that start it,
// etcd and API servers.
package argv

import (
	"slices"
	"strings"
)

// Flags are the values of flags by name, without dashes, in order.
type Flags map[string][]string

// Parse reads --name=value and --name value, with one dash or two, and returns the words that are neither. The flags in
// valued take the next word as their value in any case, others only if it is not a flag: no list of a program's flags
// is right for all of its versions.
func Parse(words, valued []string) (f Flags, rest []string) {
	f = Flags{}
	for n := 0; n < len(words); n++ {
		word, is := strings.CutPrefix(words[n], "-")
		name, value, joined := strings.Cut(strings.TrimPrefix(word, "-"), "=")
		if !is || name == "" {
			rest = append(rest, words[n])
			continue
		}
		if !joined && n+1 < len(words) && (slices.Contains(valued, name) || !strings.HasPrefix(words[n+1], "-")) {
			n++
			value = words[n]
		}
		f[name] = append(f[name], value)
	}
	return f, rest
}

// Dashed writes the names of flags with dashes: the programs of Kubernetes also accept underscores
// (k8s.io/component-base, cli/flag, WordSepNormalizeFunc).
func Dashed(words []string) []string {
	out := slices.Clone(words)
	for n, word := range out {
		if name, _, _ := strings.Cut(word, "="); strings.HasPrefix(word, "--") {
			out[n] = strings.ReplaceAll(name, "_", "-") + word[len(name):]
		}
	}
	return out
}

// Last returns the value of a flag of which the last occurrence counts.
func (f Flags) Last(name string) string {
	if values := f[name]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}
