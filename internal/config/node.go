// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// yamlLine is how yaml.v3 words where its errors are.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// document gives the root mapping of a file; nil where it is empty or was reported.
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
		at := yamlLine.FindStringSubmatch(err.Error())
		line, _ := strconv.Atoi(at[1]) // 0 where yaml.v3 names none
		w.report(line, "", "not YAML: %s", strings.TrimPrefix(err.Error(), at[0]))
	case first.Content[0].Tag != "!!null":
		return first.Content[0]
	}
	return nil
}

// pairs visits the names and values of a mapping; a name that was there before is a problem, and is not visited.
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

// join is the dotted path of a key.
func join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

// kindName words what stands where something else should.
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

// lookup gives the value of that name in a mapping; nil: there is none.
func lookup(mapping *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// child is lookup that adds what is not there.
func child(mapping *yaml.Node, name string) *yaml.Node {
	value := lookup(mapping, name)
	if value == nil {
		value = &yaml.Node{}
		mapping.Content = append(mapping.Content, textNode(name), value)
	}
	return value
}
