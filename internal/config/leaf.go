// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"

	"gopkg.in/yaml.v3"
)

// maxItems bounds a list, a table, and a list of records. A node has some
// dozens of images.
const maxItems = 1024

// leaf reads what stands behind a key that is no section. It is false where
// something was wrong.
func (p *parser) leaf(path string, k key, node *yaml.Node) (input, bool) {
	before := p.problems.count()
	in := input{from: origin{p.place, node.Line}}
	if k.shape != text && len(node.Content) > 2*maxItems {
		p.report(node.Line, "%s: more than %d entries", path, maxItems)
		return in, false
	}
	switch k.shape {
	case text:
		in.text = p.scalar(path, k, node)
	case list:
		p.items(path, node, func(item *yaml.Node) {
			in.list = append(in.list, p.input(path, k, item))
		})
	case table:
		in.named = map[string]input{}
		p.pairs(node, path, func(name, value *yaml.Node) {
			if err := k.names(name.Value); err != nil {
				p.report(name.Line, "%s: %q: %w", path, name.Value, err)
			}
			in.names = append(in.names, name.Value)
			in.named[name.Value] = p.input(path+"."+name.Value, k, value)
		})
	case records:
		p.items(path, node, func(item *yaml.Node) { in.list = append(in.list, p.record(path, k, item)) })
		if !k.unnamed {
			p.unique(path, k, in.list)
		}
	}
	return in, p.problems.count() == before
}

// input is a scalar and where it stands.
func (p *parser) input(path string, k key, node *yaml.Node) input {
	return input{from: origin{p.place, node.Line}, text: p.scalar(path, k, node)}
}

// scalar reads and checks one text. Numbers are taken as they are written, so
// that a tag 3.10 stays one.
func (p *parser) scalar(path string, k key, node *yaml.Node) string {
	switch node.Tag {
	case "!!str", "!!int", "!!float", "!!timestamp":
	case "!!bool":
		if !k.boolean {
			p.report(node.Line, "%s: a boolean, want text (in quotes where it is meant)", path)
		}
	default:
		p.report(node.Line, "%s: %s, want a single value", path, kindName(node))
		return ""
	}
	if k.check == nil {
		return node.Value
	}
	if err := k.check(node.Value); err != nil {
		p.report(node.Line, "%s: %.200q: %w", path, node.Value, err)
	}
	return node.Value
}

func (p *parser) items(path string, node *yaml.Node, visit func(*yaml.Node)) {
	if node.Kind != yaml.SequenceNode {
		p.report(node.Line, "%s: %s, want a list (- item)", path, kindName(node))
		return
	}
	for _, item := range node.Content {
		visit(item)
	}
}

// record reads one entry of a list of records. What its keys ask of one another
// is looked at where each of them is right.
func (p *parser) record(path string, k key, node *yaml.Node) input {
	before := p.problems.count()
	in := input{from: origin{p.place, node.Line}, named: map[string]input{}}
	if node.Kind != yaml.MappingNode {
		p.report(node.Line, "%s: %s, want a mapping (name: value)", path, kindName(node))
		return in
	}
	p.mapping(node, k.keys, path+".", func(path string, k key, value *yaml.Node) {
		in.names = append(in.names, k.name)
		in.named[k.name], _ = p.leaf(path, k, value)
	})
	for _, k := range k.keys {
		if _, there := in.named[k.name]; !there && !k.optional {
			p.report(node.Line, "%s: %q is missing", path, k.name)
		}
	}
	if k.fits != nil && p.problems.count() == before {
		k.fits(in.named, func(name string, err error) {
			wrong := in.named[name]
			p.problems.add(wrong.from, fmt.Errorf("%s.%s: %.200q: %w", path, name, wrong.text, err))
		})
	}
	return in
}

// unique reports two records of one name in one file.
func (p *parser) unique(path string, k key, found []input) {
	lines := map[string]int{}
	for _, in := range found {
		name, there := in.named[k.keys[0].name]
		if !there {
			continue
		}
		if line, twice := lines[name.text]; twice {
			p.report(name.from.line, "%s: repeated %s %q, first in line %d", path, k.keys[0].name, name.text, line)
		}
		lines[name.text] = name.from.line
	}
}
