// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"gopkg.in/yaml.v3"
)

// Field is one key of a mapping with its value, as written: either may be an
// alias node.
type Field struct {
	Key, Value *yaml.Node
	Merged     bool // from a merge key's mapping, not from the mapping itself
}

// Resolve follows an alias to its node; it returns other nodes unchanged, including nil.
func Resolve(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// Fields lists the keys of a mapping (of a checked File) as a reader sees them: its own in file order, then those that
// merge keys add. A node that is not a mapping has none.
func Fields(m *yaml.Node) []Field {
	m = Resolve(m)
	if m == nil || m.Kind != yaml.MappingNode {
		return nil
	}
	fields := make([]Field, 0, len(m.Content)/2)
	var merge *yaml.Node
	for i := 0; i < len(m.Content); i += 2 {
		if isMerge(m.Content[i]) {
			merge = m.Content[i+1]
			continue
		}
		fields = append(fields, Field{Key: m.Content[i], Value: m.Content[i+1]})
	}
	if merge != nil {
		fields = addMerged(fields, merge)
	}
	return fields
}

// Get returns the field with that name, including one from a merge key.
func Get(m *yaml.Node, name string) (Field, bool) {
	for _, f := range Fields(m) {
		if Resolve(f.Key).Value == name {
			return f, true
		}
	}
	return Field{}, false
}

func addMerged(fields []Field, merge *yaml.Node) []Field {
	seen := make(map[string]bool, len(fields))
	for _, f := range fields {
		seen[Resolve(f.Key).Value] = true
	}
	sources, _ := mergeSources(merge)
	for _, source := range sources {
		for _, f := range Fields(source) {
			if name := Resolve(f.Key).Value; !seen[name] {
				seen[name] = true
				fields = append(fields, Field{Key: f.Key, Value: f.Value, Merged: true})
			}
		}
	}
	return fields
}

// isMerge reports whether a key merges: only the plain (or !!merge) spelling does; a quoted "<<" is an ordinary key.
func isMerge(key *yaml.Node) bool {
	return key.Kind == yaml.ScalarNode && key.Value == "<<" && key.ShortTag() == "!!merge"
}

// mergeSources returns the mappings in a merge key's value, in order of precedence.
func mergeSources(value *yaml.Node) ([]*yaml.Node, bool) {
	value = Resolve(value)
	switch value.Kind {
	case yaml.MappingNode:
		return []*yaml.Node{value}, true
	case yaml.SequenceNode:
		var sources []*yaml.Node
		for _, item := range value.Content {
			if item = Resolve(item); item.Kind != yaml.MappingNode {
				return nil, false
			}
			sources = append(sources, item)
		}
		return sources, true
	}
	return nil, false
}
