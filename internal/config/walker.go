// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/internal/platform"
)

const (
	maxItems     = 1024 // of a list or a table: a node has some dozens of images
	defaultPlace = "default"
)

// walker reads one place after the other into Settings, each over what was read before, and into the tree that is
// shown: there each value stands as it was written, and its comment is its origin. After a problem it goes on, to
// report all.
type walker struct {
	problems problems
	platform platform.Platform // its root is before all paths
	place    string            // that is read now
	settings Settings
	shown    *yaml.Node
}

// newWalker has read the defaults.
func newWalker(p platform.Platform) *walker {
	w := &walker{platform: p, place: defaultPlace, shown: &yaml.Node{Kind: yaml.MappingNode}}
	w.section("", defaults(reflect.TypeFor[Settings](), p), reflect.ValueOf(&w.settings).Elem(), w.shown)
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

// report is about what stands at a path; empty: about the whole place.
func (w *walker) report(line int, path, format string, args ...any) {
	if path != "" {
		path += ": "
	}
	err := fmt.Errorf("%s"+format, append([]any{path}, args...)...)
	w.problems = append(w.problems, Problem{Place: w.place, Line: line, Problem: outside.Mask(err.Error()), cause: err})
}

// section reads a mapping into a struct. A key that takes more than a text, and has no value, says nothing: all its
// lines may be commented out.
func (w *walker) section(path string, in *yaml.Node, dst reflect.Value, shown *yaml.Node) {
	keys := fields(dst.Type())
	w.pairs(path, in, func(name, value *yaml.Node) {
		f, known := find(keys, name.Value)
		switch {
		case !known:
			w.report(name.Line, "", "unknown key %q, %s", join(path, name.Value), suggest(path, name.Value, keys))
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
		w.report(in.Line, path, "more than %d entries", maxItems)
	case f.isSection():
		w.section(path, in, dst, shown)
	case shape == yaml.MappingNode:
		w.table(path, f, in, dst, shown)
	case in.Kind != yaml.SequenceNode:
		w.report(in.Line, path, "%s, want a list (- item)", kindName(in))
	case f.kind == "":
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
		w.report(in.Line, path, "a boolean, want text (in quotes where it is meant)")
	default:
		w.report(in.Line, path, "%s, want a single value", kindName(in))
		return nil
	}
	*shown = *textNode(in.Value)
	shown.Tag, shown.Line, shown.LineComment = tag, in.Line, origin(w.place, in.Line)
	value, err := w.convert(f, in.Value)
	if err != nil {
		w.report(in.Line, path, "%.200q: %w", in.Value, err)
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
		value = filepath.Join("/", w.platform.Root, text)
	case "searchpath":
		dirs := filepath.SplitList(text)
		for i, dir := range dirs {
			dirs[i] = filepath.Join("/", w.platform.Root, dir)
		}
		value = dirs
	}
	return value, err
}

// assign sets a value that was read. A pointer says whether one was written.
func assign(dst reflect.Value, value any) {
	v := reflect.ValueOf(value)
	switch {
	case !v.IsValid(): // it was reported
	case dst.Kind() == reflect.Pointer && v.Kind() != reflect.Pointer:
		dst.Set(reflect.New(dst.Type().Elem()))
		dst.Elem().Set(v)
	default:
		dst.Set(v)
	}
}

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
}

// table reads names and scalars, over those of before.
func (w *walker) table(path string, f field, in *yaml.Node, dst reflect.Value, shown *yaml.Node) {
	if dst.IsNil() {
		dst.Set(reflect.MakeMap(f.Type))
	}
	w.pairs(path, in, func(name, item *yaml.Node) {
		if _, err := kinds[f.Tag.Get("names")](name.Value, nil); err != nil {
			w.report(name.Line, path, "%q: %w", name.Value, err)
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
		w.report(in.Line, path, "%d %s, want at most %d", len(in.Content), f.name, most)
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
				w.report(name.Line, path, "repeated %s %q, first in line %d", key, name.Value, line)
			}
			lines[name.Value] = name.Line
			at = slices.IndexFunc(shown.Content, func(n *yaml.Node) bool { return child(n, key).Value == name.Value })
		}
		if at < 0 || layered {
			dst.Set(reflect.Append(dst, entry))
			shown.Content = append(shown.Content, node)
			continue
		}
		dst.Index(at).Set(entry)
		shown.Content[at] = node
	}
}

// record reads one entry of a list of records. What its keys ask of one another is looked at where each is right.
func (w *walker) record(path string, in *yaml.Node, dst reflect.Value, shown *yaml.Node) {
	before := len(w.problems)
	if w.section(path, in, dst, shown); in.Kind != yaml.MappingNode {
		return
	}
	for _, f := range fields(dst.Type()) {
		def, optional := f.Tag.Lookup("default")
		switch {
		case lookup(shown, f.name) != nil:
		case optional:
			value, _ := w.convert(f, def)
			assign(dst.FieldByIndex(f.Index), value)
		case !strings.HasSuffix(f.Tag.Get("yaml"), ",omitempty"):
			w.report(in.Line, path, "%q is missing", f.name)
		}
	}
	if entry, is := reflect.TypeAssert[*Repository](dst.Addr()); is && len(w.problems) == before {
		w.fit(path, entry, shown)
	}
}
