// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

func (g Grain) updatesEntry() entry {
	var items [][]string
	for _, u := range g.Updates {
		items = append(items, u.values())
	}
	return list(keyUpdates, updateFields, items)
}

// notAllowedEntry returns an empty entry if all newer releases are allowed.
func (g Grain) notAllowedEntry() entry {
	if len(g.NotAllowed) == 0 {
		return entry{key: keyNotAllowed}
	}
	var items [][]string
	for _, n := range g.NotAllowed {
		items = append(items, n.values())
	}
	return list(keyNotAllowed, notAllowedFields, items)
}

// list returns the entry of a list of mappings with the same fields.
func list(key string, fields []string, items [][]string) entry {
	says := func(n *yaml.Node) bool {
		if n.Kind != yaml.SequenceNode || len(n.Content) != len(items) {
			return false
		}
		for i, item := range n.Content {
			if !saysItem(item, fields, items[i]) {
				return false
			}
		}
		return true
	}
	return entry{key, itemLines(key, fields, items), says}
}

// itemLines writes the list without indentation, as Salt's dumps do.
func itemLines(key string, fields []string, items [][]string) string {
	if len(items) == 0 {
		return key + ": []\n"
	}
	var b strings.Builder
	b.WriteString(key + ":\n")
	for _, values := range items {
		for i, value := range values {
			mark := "-"
			if i > 0 {
				mark = " "
			}
			fmt.Fprintf(&b, "%s %s: %s\n", mark, fields[i], quote(value))
		}
	}
	return b.String()
}

// saysItem accepts the fields in any order: Salt's dumps sort them.
func saysItem(n *yaml.Node, fields, values []string) bool {
	if n.Kind != yaml.MappingNode || len(n.Content) != 2*len(fields) {
		return false
	}
	for i := 0; i < len(n.Content); i += 2 {
		field := slices.Index(fields, n.Content[i].Value)
		if field < 0 || !isString(n.Content[i], fields[field]) || !isString(n.Content[i+1], values[field]) {
			return false
		}
	}
	return true
}
