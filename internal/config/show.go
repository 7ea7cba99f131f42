// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"
)

// Entry is one merged value and where it comes from.
type Entry struct {
	// Key is as "log.level", "manage[0]", "values.sles12/velum" or
	// "repositories[0].deny[1]".
	Key    string `json:"key"`
	Value  string `json:"value"`  // as written, without the root
	Origin string `json:"origin"` // "file:line", "environment NAME" or "default"
}

// Entries lists the merged values in the order of the schema. What is empty,
// such as a list without items, has no entry.
func (c *Config) Entries() []Entry {
	var found []Entry
	add := func(key string, in input) {
		found = append(found, Entry{Key: key, Value: in.text, Origin: in.from.String()})
	}
	leaves(schema(), "", func(path string, k key) { c.merged[path].each(path, k, add) })
	return found
}

// each visits the texts of an input, with the path of each.
func (in input) each(path string, k key, visit func(path string, in input)) {
	switch k.shape {
	case list:
		for i, item := range in.list {
			visit(fmt.Sprintf("%s[%d]", path, i), item)
		}
	case table:
		for _, name := range in.names {
			visit(path+"."+name, in.named[name])
		}
	case records:
		for i, item := range in.list {
			for _, name := range item.names {
				inner, _ := find(k.keys, name)
				item.named[name].each(fmt.Sprintf("%s[%d].%s", path, i, name), inner, visit)
			}
		}
	default:
		visit(path, in)
	}
}

// YAML gives the merged configuration as one file, each value with its origin
// in a comment. Read again, it gives the same Settings.
func (c *Config) YAML() ([]byte, error) {
	root := mappingNode()
	leaves(schema(), "", func(path string, k key) {
		at, name := root, path
		if section, below, nested := strings.Cut(path, "."); nested {
			at, name = child(root, section), below
		}
		put(at, name, c.merged[path].node(k))
	})
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return out.Bytes(), nil
}

func (in input) node(k key) *yaml.Node {
	var node *yaml.Node
	switch k.shape {
	case list:
		node = &yaml.Node{Kind: yaml.SequenceNode}
		for _, item := range in.list {
			node.Content = append(node.Content, item.scalarNode(k))
		}
	case records:
		node = &yaml.Node{Kind: yaml.SequenceNode}
		for _, item := range in.list {
			node.Content = append(node.Content, item.recordNode(k))
		}
	case table:
		node = mappingNode()
		for _, name := range in.names {
			put(node, name, in.named[name].scalarNode(k))
		}
	default:
		return in.scalarNode(k)
	}
	if len(node.Content) == 0 {
		node.Style = yaml.FlowStyle
		node.LineComment = in.from.String()
	}
	return node
}

func (in input) recordNode(k key) *yaml.Node {
	node := mappingNode()
	for _, name := range in.names {
		inner, _ := find(k.keys, name)
		put(node, name, in.named[name].node(inner))
	}
	return node
}

func (in input) scalarNode(k key) *yaml.Node {
	tag := "!!str"
	if k.boolean {
		tag = "!!bool"
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: in.text, LineComment: in.from.String()}
}

func mappingNode() *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode} }

func put(mapping *yaml.Node, name string, value *yaml.Node) {
	mapping.Content = append(mapping.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name}, value)
}

// child gives the mapping of that name, made where it is not there yet. The
// schema keeps a section's keys together, so it is the last one.
func child(mapping *yaml.Node, name string) *yaml.Node {
	if n := len(mapping.Content); n > 0 && mapping.Content[n-2].Value == name {
		return mapping.Content[n-1]
	}
	section := mappingNode()
	put(mapping, name, section)
	return section
}
