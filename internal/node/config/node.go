// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

// document returns the root mapping of a file; nil if it is empty or was reported.
func (w *walker) document(data []byte) *yaml.Node {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	err := decoder.Decode(&first)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		err = decoder.Decode(&second)
	}
	switch {
	case err == nil:
		w.report(second.Line, "", "second document, want one")
	case !errors.Is(err, io.EOF):
		syntax := yamledit.SyntaxError(data, err)
		w.report(syntax.Line, "", "not YAML: %s", syntax.Problem)
	case first.Content[0].Tag != "!!null":
		return first.Content[0]
	}
	return nil
}

// pairs visits the names and values of a mapping; it reports a duplicate name and does not visit it.
func (w *walker) pairs(path string, node *yaml.Node, visit func(name, value *yaml.Node)) {
	if node.Kind != yaml.MappingNode {
		w.report(node.Line, path, "%s, want a mapping (name: value)", kindName(node))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		if name.Kind != yaml.ScalarNode {
			w.report(name.Line, path, "%s as a name, want text", kindName(name))
			continue
		}
		if line, twice := seen[name.Value]; twice {
			w.report(name.Line, path, "repeated key %q, first in line %d", name.Value, line)
			continue
		}
		seen[name.Value] = name.Line
		visit(name, value)
	}
}

// join returns the dotted path of a key.
func join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

// kindName describes a node of the wrong kind.
func kindName(node *yaml.Node) string {
	switch {
	case node.Kind == yaml.MappingNode:
		return "a mapping"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	case node.Kind == yaml.AliasNode:
		return "an alias"
	case node.Tag == "!!null":
		return "no value"
	case !strings.HasPrefix(node.Tag, "!!"):
		return "a value of type " + node.Tag
	}
	return fmt.Sprintf("text %.64q", node.Value)
}

func textNode(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}

// lookup returns the value with that name in a mapping; nil if there is none.
func lookup(mapping *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// child is like lookup, but adds a missing value.
func child(mapping *yaml.Node, name string) *yaml.Node {
	value := lookup(mapping, name)
	if value == nil {
		value = &yaml.Node{}
		mapping.Content = append(mapping.Content, textNode(name), value)
	}
	return value
}
