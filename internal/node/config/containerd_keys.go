// SPDX-License-Identifier: Apache-2.0

package config

import (
	"maps"
	"slices"
	"strings"
)

// settingOf returns the value of a setting from a table; nil if there is none. containerd also accepts other spellings
// of the names of its settings, but not of names that people choose, such as hosts.
type settingOf func(table map[string]any, name string) any

// anyCase matches names as the TOML parser of containerd 2.x: in any case.
func anyCase(table map[string]any, name string) any {
	if value, is := table[name]; is {
		return value
	}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		if strings.EqualFold(key, name) {
			return table[key]
		}
	}
	return nil
}

// lowerOrUpper matches names as the TOML parser of containerd 1.x: in lower case, else in upper case.
func lowerOrUpper(table map[string]any, name string) any {
	if value, is := table[name]; is {
		return value
	}
	return table[strings.ToUpper(name)]
}
