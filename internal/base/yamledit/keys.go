// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// ErrShape is returned for a file whose top level cannot be edited by whole lines: it is not a block mapping at the
// left margin, has a second document, or two keys share a line.
var ErrShape = errors.New("not a block mapping with one key a line")

// Entry is a top-level key and the byte range of its whole lines: from the line of the key up to the first blank line,
// or comment at the left margin, before the next key. Indented comments belong to the entry above.
type Entry struct {
	Key        string
	Value      *yaml.Node
	Start, End int
}

// KeyEdit replaces, inserts or deletes one top-level key.
type KeyEdit struct {
	Key   string
	Lines string // the whole entry, "key: value" and a "\n" after each line; "" deletes it
}

// Entries lists the top-level keys in file order. An empty file has none.
func (f *File) Entries() ([]Entry, error) {
	root, err := f.blockRoot()
	if err != nil || root == nil {
		return nil, err
	}
	var entries []Entry
	for i := 0; i < len(root.Content); i += 2 {
		key := root.Content[i]
		start, err := f.Offset(key)
		if err != nil {
			return nil, err
		}
		if key.Column != 1 || key.Kind != yaml.ScalarNode || start < len(f.data) && f.data[start] == '?' {
			return nil, fmt.Errorf("%w: %w", ErrShape, ErrorAt(key, "key %q", key.Value))
		}
		entries = append(entries, Entry{Key: key.Value, Value: root.Content[i+1], Start: start})
	}
	for i := range entries {
		limit := len(f.data)
		if i+1 < len(entries) {
			limit = entries[i+1].Start
		}
		entries[i].End = f.entryEnd(f.lastKnownLine(entries[i]), limit)
	}
	return entries, nil
}

func (f *File) blockRoot() (*yaml.Node, error) {
	if len(f.Documents) == 0 {
		return nil, nil
	}
	root := f.Documents[0].Content[0]
	if len(f.Documents) > 1 {
		return nil, fmt.Errorf("%w: %w", ErrShape, ErrorAt(f.Documents[1], "a second document"))
	}
	if root.Kind == yaml.ScalarNode && root.Value == "" && root.Style == 0 {
		return nil, nil // "---" alone; a written ~ or null is a value
	}
	if root.Kind != yaml.MappingNode || root.Style&yaml.FlowStyle != 0 {
		return nil, fmt.Errorf("%w: %w", ErrShape, ErrorAt(root, "not a block mapping"))
	}
	return root, nil
}

// lastKnownLine returns the last line that is certainly part of the value. It distinguishes "# x" inside quotes from a
// comment at the left margin.
func (f *File) lastKnownLine(e Entry) int {
	last := e.Value
	for last.Kind != yaml.AliasNode && len(last.Content) > 0 {
		last = last.Content[len(last.Content)-1]
	}
	if _, end, err := f.Scalar(last); err == nil {
		return f.Line(end - 1)
	}
	return f.Line(e.Start)
}

// entryEnd moves up from the next key over blank lines, comments at the left margin, which belong to the next key, and
// a document end marker.
func (f *File) entryEnd(first, limit int) int {
	last := f.Line(limit - 1)
	for ; last > first; last-- {
		content, _ := f.lineEnd(last)
		text := f.data[f.lines[last-1]:content]
		if len(bytes.TrimSpace(text)) > 0 && text[0] != '#' && !bytes.HasPrefix(text, []byte("...")) {
			break
		}
	}
	_, end := f.lineEnd(last)
	return end
}

// EditKeys applies the edits with the file's line ending, new keys at the end in the given order, and checks by parsing
// the result that every other key is unchanged. Deleting a missing key changes nothing.
func (f *File) EditKeys(edits ...KeyEdit) ([]byte, error) {
	entries, err := f.Entries()
	if err != nil {
		return nil, err
	}
	at := make(map[string]Entry, len(entries))
	for _, e := range entries {
		at[e.Key] = e
	}
	var splices []Edit
	var appended strings.Builder
	for _, edit := range edits {
		if edit.Lines != "" && !strings.HasSuffix(edit.Lines, "\n") {
			return nil, fmt.Errorf("key %s: the lines do not end with a newline", edit.Key)
		}
		lines := strings.ReplaceAll(edit.Lines, "\n", f.LineEnding())
		if e, ok := at[edit.Key]; ok {
			if f.says(e, edit.Lines) {
				continue
			}
			splices = append(splices, Edit{e.Start, e.End, lines})
		} else {
			appended.WriteString(lines)
		}
	}
	if appended.Len() > 0 {
		splices = append(splices, f.atEnd(appended.String(), splices))
	}
	out, err := f.Splice(splices...)
	if err != nil {
		return nil, err
	}
	if err := proveKeys(out, entries, edits); err != nil {
		return nil, err
	}
	return out, nil
}

// says reports whether an entry already has these lines, with any line ending: in a file with several kinds, the first
// one may have changed since they were written.
func (f *File) says(e Entry, lines string) bool {
	has := strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n").
		Replace(string(f.data[e.Start:e.End]))
	return strings.TrimSuffix(has, "\n")+"\n" == lines
}

// atEnd appends lines after the last one, and adds its missing line break first unless an edit deletes it.
func (f *File) atEnd(lines string, splices []Edit) Edit {
	end := len(f.data)
	complete := f.lines[len(f.lines)-1] == end
	for _, e := range splices {
		complete = complete || e.End == end
	}
	if !complete {
		lines = f.LineEnding() + lines
	}
	return Edit{end, end, lines}
}

// proveKeys compares the result with the entries and the requested edits.
func proveKeys(out []byte, entries []Entry, edits []KeyEdit) error {
	result, err := Parse(out)
	if err != nil {
		return fmt.Errorf("edited file: %w", err)
	}
	want := slices.Clone(entries)
	for _, edit := range edits {
		var value *yaml.Node
		if edit.Lines != "" {
			if value, err = parseEntry(edit); err != nil {
				return err
			}
		}
		want = withKey(want, edit.Key, value)
	}
	got, err := result.Entries()
	if err != nil {
		return fmt.Errorf("edited file: %w", err)
	}
	if len(got) != len(want) {
		return fmt.Errorf("edited file: %d keys, want %d: an edit runs into its neighbours", len(got), len(want))
	}
	for i, w := range want {
		if got[i].Key != w.Key || !Same(got[i].Value, w.Value, nil) {
			return fmt.Errorf("edited file: line %d: key %q is not as intended", result.Line(got[i].Start), got[i].Key)
		}
	}
	return nil
}

func parseEntry(edit KeyEdit) (*yaml.Node, error) {
	f, err := Parse([]byte(edit.Lines))
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", edit.Key, err)
	}
	entries, err := f.Entries()
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", edit.Key, err)
	}
	if len(entries) != 1 || entries[0].Key != edit.Key {
		return nil, fmt.Errorf("key %s: not the lines of this one key", edit.Key)
	}
	return entries[0].Value, nil
}

// withKey sets, appends or (value nil) removes a key.
func withKey(entries []Entry, key string, value *yaml.Node) []Entry {
	i := slices.IndexFunc(entries, func(e Entry) bool { return e.Key == key })
	switch {
	case i >= 0 && value == nil:
		return slices.Delete(entries, i, i+1)
	case i >= 0:
		entries[i].Value = value
	case value != nil:
		return append(entries, Entry{Key: key, Value: value})
	}
	return entries
}

// Field is one key of a mapping with its value, as written: either may be an
// alias node.
type Field struct {
	Key, Value *yaml.Node
	Merged     bool // from a merge key's mapping, not from the mapping itself
}

// Resolve follows an alias to its node; it returns other nodes unchanged, including nil.
func Resolve(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// Fields lists the keys of a mapping (of a checked File) as a reader sees them: its own in file order, then those that
// merge keys add. A node that is not a mapping has none.
func Fields(m *yaml.Node) []Field {
	m = Resolve(m)
	if m == nil || m.Kind != yaml.MappingNode {
		return nil
	}
	fields := make([]Field, 0, len(m.Content)/2)
	var merge *yaml.Node
	for i := 0; i < len(m.Content); i += 2 {
		if isMerge(m.Content[i]) {
			merge = m.Content[i+1]
			continue
		}
		fields = append(fields, Field{Key: m.Content[i], Value: m.Content[i+1]})
	}
	if merge != nil {
		fields = addMerged(fields, merge)
	}
	return fields
}

// Get returns the field with that name, including one from a merge key.
func Get(m *yaml.Node, name string) (Field, bool) {
	for _, f := range Fields(m) {
		if Resolve(f.Key).Value == name {
			return f, true
		}
	}
	return Field{}, false
}

func addMerged(fields []Field, merge *yaml.Node) []Field {
	seen := make(map[string]bool, len(fields))
	for _, f := range fields {
		seen[Resolve(f.Key).Value] = true
	}
	sources, _ := mergeSources(merge)
	for _, source := range sources {
		for _, f := range Fields(source) {
			if name := Resolve(f.Key).Value; !seen[name] {
				seen[name] = true
				fields = append(fields, Field{Key: f.Key, Value: f.Value, Merged: true})
			}
		}
	}
	return fields
}

// isMerge reports whether a key merges: only the plain (or !!merge) spelling does; a quoted "<<" is an ordinary key.
func isMerge(key *yaml.Node) bool {
	return key.Kind == yaml.ScalarNode && key.Value == "<<" && key.ShortTag() == "!!merge"
}

// mergeSources returns the mappings in a merge key's value, in order of precedence.
func mergeSources(value *yaml.Node) ([]*yaml.Node, bool) {
	value = Resolve(value)
	switch value.Kind {
	case yaml.MappingNode:
		return []*yaml.Node{value}, true
	case yaml.SequenceNode:
		var sources []*yaml.Node
		for _, item := range value.Content {
			if item = Resolve(item); item.Kind != yaml.MappingNode {
				return nil, false
			}
			sources = append(sources, item)
		}
		return sources, true
	}
	return nil, false
}
