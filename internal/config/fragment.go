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

// origin is where a value was written. Line 0 is a place without lines.
type origin struct {
	place string // a file, "default", or the environment's variable
	line  int
}

func (o origin) String() string {
	if o.line == 0 {
		return o.place
	}
	return o.place + ":" + strconv.Itoa(o.line)
}

// input is one value as written: a text, a list, or named inputs.
type input struct {
	from  origin
	text  string
	list  []input
	names []string // of named, in the order written
	named map[string]input
}

// texts are those of a list; not nil, for a list that was written.
func (in input) texts() []string {
	texts := make([]string, 0, len(in.list))
	for _, item := range in.list {
		texts = append(texts, item.text)
	}
	return texts
}

// fragment is what one place says: inputs by the dotted path of their key.
type fragment map[string]input

// parser reads one file. It goes on after a problem, to report them all.
type parser struct {
	place    string
	problems problems
}

// parse reads a fragment from YAML.
func parse(place string, data []byte) (fragment, error) {
	p := &parser{place: place}
	found := fragment{}
	if root := p.document(data); root != nil {
		p.mapping(root, schema(), "", func(path string, k key, node *yaml.Node) {
			if in, ok := p.leaf(path, k, node); ok {
				found[path] = in
			}
		})
	}
	return found, p.problems.err()
}

func (p *parser) report(line int, format string, args ...any) {
	p.problems.add(origin{p.place, line}, fmt.Errorf(format, args...))
}

// yamlLine is how yaml.v3 words where its errors are.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// document gives the root mapping; nil where the file is empty or was reported.
func (p *parser) document(data []byte) *yaml.Node {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		p.syntax(err)
		return nil
	}
	var second yaml.Node
	if err := decoder.Decode(&second); err == nil {
		p.report(second.Line, "second document, want one")
		return nil
	} else if !errors.Is(err, io.EOF) {
		p.syntax(err)
		return nil
	}
	root := doc.Content[0]
	if root.Tag == "!!null" {
		return nil
	}
	return root
}

func (p *parser) syntax(err error) {
	found := yamlLine.FindStringSubmatch(err.Error())
	cause, line := err.Error(), 0
	if found != nil {
		cause = strings.TrimPrefix(cause, found[0])
		line, _ = strconv.Atoi(found[1])
	}
	p.report(line, "not YAML: %s", cause)
}

// mapping visits the keys of a mapping that may stand there, sections opened. A
// key that takes more than a text, and has no value, says nothing: all its lines
// may be commented out.
func (p *parser) mapping(node *yaml.Node, keys []key, prefix string, visit func(string, key, *yaml.Node)) {
	p.pairs(node, strings.TrimSuffix(prefix, "."), func(name, value *yaml.Node) {
		k, known := find(keys, name.Value)
		switch {
		case !known:
			p.report(name.Line, "unknown key %q, %s", prefix+name.Value, suggest(name.Value, keys, prefix))
		case k.shape != text && value.Tag == "!!null":
		case k.shape == section:
			p.mapping(value, k.keys, prefix+k.name+".", visit)
		default:
			visit(prefix+k.name, k, value)
		}
	})
}

// pairs visits the names and values of a mapping; a name that was there before
// is a problem, and is not visited.
func (p *parser) pairs(node *yaml.Node, path string, visit func(name, value *yaml.Node)) {
	if node.Kind != yaml.MappingNode {
		p.report(node.Line, "%s%s, want a mapping (name: value)", label(path), kindName(node))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		if name.Kind != yaml.ScalarNode {
			p.report(name.Line, "%s%s as a name, want text", label(path), kindName(name))
			continue
		}
		if line, twice := seen[name.Value]; twice {
			p.report(name.Line, "%srepeated key %q, first in line %d", label(path), name.Value, line)
			continue
		}
		seen[name.Value] = name.Line
		visit(name, value)
	}
}

func label(path string) string {
	if path == "" {
		return ""
	}
	return path + ": "
}

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
