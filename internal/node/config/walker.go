// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
)

const (
	maxItems     = 1024 // of a list or a table: a node has some dozens of images
	defaultPlace = "default"
)

// walker reads one source after another into Settings, each overriding the earlier ones, and into the tree for `config
// show`: there each value is as written, and its comment is its origin. After a problem it continues, to report all.
type walker struct {
	problems problems
	platform platform.Platform // its root is the prefix of all paths
	place    string            // the current source
	settings Settings
	shown    *yaml.Node
	lost     bool // nothing of Sources.File could be read
}

// newWalker returns a walker that has read the defaults.
func newWalker(p platform.Platform) *walker {
	w := &walker{platform: p, place: defaultPlace, shown: &yaml.Node{Kind: yaml.MappingNode}}
	w.section("", defaults(reflect.TypeFor[Settings](), p), reflect.ValueOf(&w.settings).Elem(), w.shown)
	return w
}

// read reads a file, and reports whether anything of it could be read.
func (w *walker) read(place string, data []byte) bool {
	w.place = place
	root := w.document(data)
	if root != nil {
		w.section("", root, reflect.ValueOf(&w.settings).Elem(), w.shown)
	}
	return root != nil
}

// set sets the text of a scalar key from a source that is not one of the agent's files.
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

// written returns a key's node in the shown tree.
func (w *walker) written(key string) *yaml.Node {
	node := w.shown
	for name := range strings.SplitSeq(key, ".") {
		node = lookup(node, name)
	}
	return node
}

// report records a problem with the value at a path; empty: with the whole source.
func (w *walker) report(line int, path, format string, args ...any) {
	if path != "" {
		path += ": "
	}
	err := fmt.Errorf("%s"+format, append([]any{path}, args...)...)
	w.problems = append(w.problems, Problem{Place: w.place, Line: line, Problem: outside.Mask(err.Error()), cause: err})
}

// section reads a mapping into a struct. A key for more than a text that has no value is ignored: all its lines may be
// commented out.
func (w *walker) section(path string, in *yaml.Node, dst reflect.Value, shown *yaml.Node) {
	keys := fields(dst.Type())
	w.pairs(path, in, func(name, value *yaml.Node) {
		f, known := find(keys, name.Value)
		switch gone, instead := retired(join(path, name.Value), value.Value); {
		case gone != "":
			w.report(name.Line, "", "%q was removed, %s", gone, instead)
		case !known:
			w.report(name.Line, "", "unknown key %q, %s", join(path, name.Value), suggest(path, name.Value, keys))
		case value.Tag == "!!null" && f.shape() != yaml.ScalarNode:
		default:
			w.value(join(path, f.name), f, value, dst.FieldByIndex(f.Index), child(shown, f.name))
		}
	})
}

// value reads the value of a key.
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
	if len(shown.Content) == 0 { // an empty value has no origin
		shown.Style, shown.LineComment = yaml.FlowStyle, origin(w.place, in.Line)
	}
}

// scalar reads one text; nil if it was reported. Numbers keep their spelling, so that a tag 3.10 does not change.
func (w *walker) scalar(path string, f field, in, shown *yaml.Node) any {
	tag := "!!str"
	if f.kind == "bool" {
		tag = "!!bool"
	}
	switch {
	case in.Kind == yaml.ScalarNode && slices.Contains([]string{"!!str", "!!int", "!!float", "!!timestamp", tag}, in.Tag):
	case in.Tag == "!!bool":
		w.report(in.Line, path, "a boolean, want text (put it in quotes)")
	default:
		w.report(in.Line, path, "%s, want a single value", kindName(in))
		return nil
	}
	*shown = *textNode(in.Value)
	shown.Tag, shown.Line, shown.LineComment = tag, in.Line, origin(w.placeOf(f), in.Line)
	value, err := w.convert(f, in.Value)
	switch {
	case err != nil && f.kind == "webhookurl": // it may be a secret
		w.report(in.Line, path, "%w", err)
		return nil
	case err != nil:
		w.report(in.Line, path, "%.200q: %w", in.Value, err)
		return nil
	}
	return value
}

// placeOf returns the current source. A default may be the platform's.
func (w *walker) placeOf(f field) string {
	if w.place != defaultPlace || f.Tag.Get("platform") == "" {
		return w.place
	}
	all := platform.All()
	if f.defaultOn(w.platform) != f.defaultOn(all[len(all)-1]) {
		return defaultPlace + " of " + w.platform.Name
	}
	return defaultPlace
}

// convert parses a text, and reports its problem.
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

// assign sets a value. A pointer shows whether it was set.
func assign(dst reflect.Value, value any) {
	v := reflect.ValueOf(value)
	switch {
	case !v.IsValid(): // already reported
	case dst.Kind() == reflect.Pointer && v.Kind() != reflect.Pointer:
		dst.Set(reflect.New(dst.Type().Elem()))
		dst.Elem().Set(v)
	default:
		dst.Set(v)
	}
}

// list reads scalars, which replace the earlier ones. An item may become several values.
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

// table reads names and scalars into the earlier ones.
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

// records reads mappings with the same keys. They replace earlier ones with the same name in place, or all if they have
// no names.
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

// record reads one entry of a list of records. Dependencies between its keys are checked if each is valid.
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
	if len(w.problems) > before {
		return
	}
	if entry, is := reflect.TypeAssert[*Repository](dst.Addr()); is {
		w.fit(path, entry, shown)
	}
	if entry, is := reflect.TypeAssert[*Webhook](dst.Addr()); is {
		if err := entry.check(); err != nil {
			w.report(in.Line, path, "%q: %w", entry.Name, err)
		}
	}
}

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
