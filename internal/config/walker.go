// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// maxItems bounds a list, a table, and a list of records. A node has some dozens of images.
const maxItems = 1024

// defaultPlace is the origin of defaults.
const defaultPlace = "default"

// walker reads one place after the other into Settings, each over what was read before, and into the tree that is
// shown: there each value stands as it was written, and its comment is its origin. After a problem it goes on, to
// report all.
type walker struct {
	problems problems
	root     string // of paths
	place    string // that is read now
	settings Settings
	shown    *yaml.Node
}

// newWalker has read the defaults.
func newWalker(root string) *walker {
	w := &walker{root: root, place: defaultPlace, shown: &yaml.Node{Kind: yaml.MappingNode}}
	w.section("", defaults(reflect.TypeFor[Settings]()), reflect.ValueOf(&w.settings).Elem(), w.shown)
	return w
}

// read reads a file.
func (w *walker) read(place string, data []byte) {
	w.place = place
	if root := w.document(data); root != nil {
		w.section("", root, reflect.ValueOf(&w.settings).Elem(), w.shown)
	}
}

// set reads the text of a scalar key from a place that is no file of ours.
func (w *walker) set(key, place, text string) {
	w.place = place
	f, dst := w.field(key)
	assign(dst, w.scalar("", f, textNode(text), w.written(key)))
}

func (w *walker) field(key string) (f field, dst reflect.Value) {
	dst = reflect.ValueOf(&w.settings).Elem()
	for name := range strings.SplitSeq(key, ".") {
		f, _ = find(fields(dst.Type()), name)
		dst = dst.FieldByIndex(f.Index)
	}
	return f, dst
}

// written is a key as it is shown.
func (w *walker) written(key string) *yaml.Node {
	node := w.shown
	for name := range strings.SplitSeq(key, ".") {
		node = lookup(node, name)
	}
	return node
}

func (w *walker) add(place string, line int, err error) {
	w.problems = append(w.problems, Problem{Place: place, Line: line, Problem: err.Error(), cause: err})
}

func (w *walker) report(line int, format string, args ...any) {
	w.add(w.place, line, fmt.Errorf(format, args...))
}

// section reads a mapping into a struct. A key that takes more than a text, and has no value, says nothing: all its
// lines may be commented out.
func (w *walker) section(path string, in *yaml.Node, dst reflect.Value, shown *yaml.Node) {
	keys := fields(dst.Type())
	w.pairs(path, in, func(name, value *yaml.Node) {
		f, known := find(keys, name.Value)
		switch {
		case !known:
			w.report(name.Line, "unknown key %q, %s", join(path, name.Value), suggest(path, name.Value, keys))
		case value.Tag == "!!null" && f.shape() != yaml.ScalarNode:
		default:
			w.value(join(path, f.name), f, value, dst.FieldByIndex(f.Index), child(shown, f.name))
		}
	})
}

// value reads what stands behind a key.
func (w *walker) value(path string, f field, in *yaml.Node, dst reflect.Value, shown *yaml.Node) {
	shape := f.shape()
	if shape == yaml.ScalarNode {
		assign(dst, w.scalar(path, f, in, shown))
		return
	}
	shown.Kind = shape
	switch {
	case len(in.Content) > 2*maxItems:
		w.report(in.Line, "%s: more than %d entries", path, maxItems)
	case f.isSection():
		w.section(path, in, dst, shown)
	case shape == yaml.MappingNode:
		w.table(path, f, in, dst, shown)
	case in.Kind != yaml.SequenceNode:
		w.report(in.Line, "%s: %s, want a list (- item)", path, kindName(in))
	case f.isRecords():
		w.records(path, f, in, dst, shown)
	default:
		w.list(path, f, in, dst, shown)
	}
	shown.Style, shown.LineComment = 0, ""
	if len(shown.Content) == 0 { // no value says where it is from
		shown.Style, shown.LineComment = yaml.FlowStyle, origin(w.place, in.Line)
	}
}

// scalar reads one text; nil: it was reported. Numbers are taken as they are written, so that a tag 3.10 stays one.
func (w *walker) scalar(path string, f field, in, shown *yaml.Node) any {
	tag := "!!str"
	if f.kind == "bool" {
		tag = "!!bool"
	}
	switch {
	case in.Kind == yaml.ScalarNode && slices.Contains([]string{"!!str", "!!int", "!!float", "!!timestamp", tag}, in.Tag):
	case in.Tag == "!!bool":
		w.report(in.Line, "%sa boolean, want text (in quotes where it is meant)", label(path))
	default:
		w.report(in.Line, "%s%s, want a single value", label(path), kindName(in))
		return nil
	}
	*shown = yaml.Node{
		Kind: yaml.ScalarNode, Tag: tag, Value: in.Value, Line: in.Line, LineComment: origin(w.place, in.Line),
	}
	value, err := w.convert(f, in.Value)
	if err != nil {
		w.report(in.Line, "%s%.200q: %w", label(path), in.Value, err)
		return nil
	}
	return value
}

// convert makes a value of a text, and says what is wrong with it.
func (w *walker) convert(f field, text string) (any, error) {
	if f.empty && text == "" {
		return reflect.Zero(f.Type).Interface(), nil
	}
	value, err := kinds[f.kind](text, f.args)
	switch f.kind {
	case "path":
		value = filepath.Join("/", w.root, text)
	case "searchpath":
		dirs := filepath.SplitList(text)
		for i, dir := range dirs {
			dirs[i] = filepath.Join("/", w.root, dir)
		}
		value = dirs
	}
	return value, err
}

// assign sets a value that was read. A pointer says whether one was written.
func assign(dst reflect.Value, value any) {
	if value == nil {
		return
	}
	v := reflect.ValueOf(value)
	if dst.Kind() == reflect.Pointer && v.Kind() != reflect.Pointer {
		dst.Set(reflect.New(dst.Type().Elem()))
		dst = dst.Elem()
	}
	dst.Set(v)
}
