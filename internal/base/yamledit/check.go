// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"gopkg.in/yaml.v3"
)

// measure is the size of an anchored node, which counts wherever an alias repeats it.
type measure struct {
	nodes  int
	height int
}

// checker has the node count of a whole file; anchors end with their document.
type checker struct {
	anchored map[*yaml.Node]measure
	keys     map[string]*yaml.Node // scratch of one mapping
	nodes    int
}

func (c *checker) document(doc *yaml.Node) error {
	for _, n := range doc.Content {
		m, err := c.visit(n, 1)
		if err != nil {
			return err
		}
		c.nodes += m.nodes
		if c.nodes > MaxNodes {
			return ErrorAt(n, "more than %d nodes", MaxNodes)
		}
	}
	clear(c.anchored)
	return nil
}

// visit checks n at the given depth and returns its size.
func (c *checker) visit(n *yaml.Node, depth int) (measure, error) {
	if depth > MaxDepth {
		return measure{}, ErrorAt(n, "nested deeper than %d levels", MaxDepth)
	}
	if n.Kind == yaml.AliasNode {
		return c.alias(n, depth)
	}
	if n.Kind == yaml.MappingNode {
		if err := c.mappingKeys(n); err != nil {
			return measure{}, err
		}
	}
	sum := measure{nodes: 1}
	for _, child := range n.Content {
		m, err := c.visit(child, depth+1)
		if err != nil {
			return measure{}, err
		}
		sum.nodes += m.nodes
		sum.height = max(sum.height, m.height+1)
		if sum.nodes > MaxNodes {
			return measure{}, ErrorAt(child, "more than %d nodes, aliases expanded", MaxNodes)
		}
	}
	if n.Anchor != "" {
		c.anchored[n] = sum
	}
	if n.Kind == yaml.MappingNode {
		return sum, checkMerge(n)
	}
	return sum, nil
}

func (c *checker) alias(n *yaml.Node, depth int) (measure, error) {
	m, complete := c.anchored[n.Alias]
	if !complete {
		return measure{}, ErrorAt(n, "alias *%s lies inside its own anchor", n.Value)
	}
	if depth+m.height > MaxDepth {
		return measure{}, ErrorAt(n, "alias *%s: nested deeper than %d levels", n.Value, MaxDepth)
	}
	return m, nil
}

// mappingKeys requires scalar keys without duplicates: parsers disagree on which duplicate counts, so an edit would
// have to guess.
func (c *checker) mappingKeys(m *yaml.Node) error {
	clear(c.keys)
	for i := 0; i < len(m.Content); i += 2 {
		key := m.Content[i]
		target := Resolve(key)
		if target.Kind != yaml.ScalarNode {
			return ErrorAt(key, "a key that is not a scalar")
		}
		if first, ok := c.keys[target.Value]; ok {
			return ErrorAt(key, "duplicate key %q, first on line %d", target.Value, first.Line)
		}
		c.keys[target.Value] = key
	}
	return nil
}

// checkMerge requires mappings as a merge key's value, and no key before it that it also provides: there yaml.v2
// (kubelet) uses the merged value, and YAML's definition (https://yaml.org/type/merge.html) and yaml.v3 the explicit
// one.
func checkMerge(m *yaml.Node) error {
	for i := 0; i < len(m.Content); i += 2 {
		if !isMerge(m.Content[i]) {
			continue
		}
		sources, ok := mergeSources(m.Content[i+1])
		if !ok {
			return ErrorAt(m.Content[i], "merge key: the value is neither a mapping nor a list of mappings")
		}
		before := keysBefore(m, i)
		for _, source := range sources {
			for _, field := range Fields(source) {
				if key := before[Resolve(field.Key).Value]; key != nil {
					return ErrorAt(key, "key %q comes before a merge key that also has it; "+
						"parsers disagree which counts", Resolve(key).Value)
				}
			}
		}
	}
	return nil
}

func keysBefore(m *yaml.Node, end int) map[string]*yaml.Node {
	keys := make(map[string]*yaml.Node, end/2)
	for i := 0; i < end; i += 2 {
		keys[Resolve(m.Content[i]).Value] = m.Content[i]
	}
	return keys
}
