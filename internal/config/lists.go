// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// list reads scalars, which replace those of before. An item may be several values.
func (w *walker) list(path string, f field, in *yaml.Node, dst reflect.Value, shown *yaml.Node) {
	shown.Content = nil
	dst.Set(reflect.MakeSlice(f.Type, 0, len(in.Content)))
	for _, item := range in.Content {
		node := &yaml.Node{}
		shown.Content = append(shown.Content, node)
		switch value := reflect.ValueOf(w.scalar(path, f, item, node)); {
		case !value.IsValid():
		case value.Type() == f.Type:
			dst.Set(reflect.AppendSlice(dst, value))
		default:
			dst.Set(reflect.Append(dst, value))
		}
	}
	if days, is := reflect.TypeAssert[[]time.Weekday](dst); is { // a set
		slices.Sort(days)
		dst.Set(reflect.ValueOf(slices.Compact(days)))
	}
}

// table reads names and scalars, over those of before.
func (w *walker) table(path string, f field, in *yaml.Node, dst reflect.Value, shown *yaml.Node) {
	if dst.IsNil() {
		dst.Set(reflect.MakeMap(f.Type))
	}
	w.pairs(path, in, func(name, item *yaml.Node) {
		if _, err := kinds[f.Tag.Get("names")](name.Value, nil); err != nil {
			w.report(name.Line, "%s: %q: %w", path, name.Value, err)
		}
		if value := w.scalar(join(path, name.Value), f, item, child(shown, name.Value)); value != nil {
			dst.SetMapIndex(reflect.ValueOf(name.Value), reflect.ValueOf(value))
		}
	})
}

// records reads mappings with the same keys. They replace those of the same name where they stand, or all where they
// have no name.
func (w *walker) records(path string, f field, in *yaml.Node, dst reflect.Value, shown *yaml.Node) {
	if most, err := strconv.Atoi(f.Tag.Get("most")); err == nil && len(in.Content) > most {
		w.report(in.Line, "%s: %d %s, want at most %d", path, len(in.Content), f.name, most)
	}
	key, layered := strings.CutSuffix(f.Tag.Get("key"), ",layered")
	if key == "" {
		shown.Content = nil
		dst.SetZero()
	}
	lines := map[string]int{}
	for _, item := range in.Content {
		entry, node := reflect.New(f.Type.Elem()).Elem(), &yaml.Node{Kind: yaml.MappingNode}
		w.record(path, item, entry, node)
		at := -1
		if name := lookup(node, key); name != nil {
			if line, twice := lines[name.Value]; twice {
				w.report(name.Line, "%s: repeated %s %q, first in line %d", path, key, name.Value, line)
			}
			lines[name.Value] = name.Line
			if !layered {
				at = slices.IndexFunc(shown.Content, func(n *yaml.Node) bool {
					below := lookup(n, key)
					return below != nil && below.Value == name.Value
				})
			}
		}
		if at < 0 {
			dst.Set(reflect.Append(dst, entry))
			shown.Content = append(shown.Content, node)
			continue
		}
		dst.Index(at).Set(entry)
		shown.Content[at] = node
	}
}

// record reads one entry of a list of records. What its keys ask of one another is looked at where each of them is
// right.
func (w *walker) record(path string, in *yaml.Node, dst reflect.Value, shown *yaml.Node) {
	before := len(w.problems)
	if w.section(path, in, dst, shown); in.Kind != yaml.MappingNode {
		return
	}
	for _, f := range fields(dst.Type()) {
		if lookup(shown, f.name) != nil {
			continue
		}
		if _, optional := strings.CutSuffix(f.Tag.Get("yaml"), ",omitempty"); !optional {
			w.report(in.Line, "%s: %q is missing", path, f.name)
		}
		if def, there := f.Tag.Lookup("default"); there {
			value, _ := w.convert(f, def)
			assign(dst.FieldByIndex(f.Index), value)
		}
	}
	if entry, is := reflect.TypeAssert[*Repository](dst.Addr()); is && len(w.problems) == before {
		w.fit(path, entry, shown)
	}
}
