// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
)

// Edit replaces the bytes [Start, End) with Text. Start == End inserts.
type Edit struct {
	Start, End int
	Text       string
}

// Splice returns a copy of the file's bytes with the edits applied. They may be in any order and must not overlap;
// insertions at one offset keep the given order.
func (f *File) Splice(edits ...Edit) ([]byte, error) {
	sorted := slices.Clone(edits)
	slices.SortStableFunc(sorted, func(a, b Edit) int { return cmp.Compare(a.Start, b.Start) })
	size, at := len(f.data), 0
	for _, e := range sorted {
		if e.Start < at || e.End < e.Start || e.End > len(f.data) {
			return nil, fmt.Errorf("edit of bytes %d to %d: overlaps another, or lies outside the file", e.Start, e.End)
		}
		at = e.End
		size += len(e.Text) - (e.End - e.Start)
	}
	out, at := make([]byte, 0, size), 0
	for _, e := range sorted {
		out = append(out, f.data[at:e.Start]...)
		out = append(out, e.Text...)
		at = e.End
	}
	return append(out, f.data[at:]...), nil
}

// breakLen returns the length of the line break at the start of b, 0 if there is none. yaml.v3 counts lines by YAML
// 1.1's five breaks (https://yaml.org/spec/1.1/#b-char), so the table of lines must do the same.
func breakLen(b []byte) int {
	if len(b) == 0 || b[0] >= ' ' && b[0] < 0xC2 {
		return 0 // fast path
	}
	for _, mark := range [...]string{"\r\n", "\n", "\r", "\u0085", "\u2028", "\u2029"} {
		if bytes.HasPrefix(b, []byte(mark)) {
			return len(mark)
		}
	}
	return 0
}

func lineStarts(data []byte) []int {
	pos := 0
	if bytes.HasPrefix(data, []byte(bom)) {
		pos = len(bom)
	}
	lines := []int{pos}
	for pos < len(data) {
		if n := breakLen(data[pos:]); n > 0 {
			pos += n
			lines = append(lines, pos)
			continue
		}
		pos++
	}
	return lines
}

// Offset returns the position of a node's first byte: of its anchor or tag if it has one.
func (f *File) Offset(n *yaml.Node) (int, error) {
	if n.Line < 1 || n.Line > len(f.lines) || n.Column < 1 {
		return 0, fmt.Errorf("line %d, column %d: not in this file", n.Line, n.Column)
	}
	pos := f.lines[n.Line-1]
	for range n.Column - 1 {
		if pos >= len(f.data) {
			return 0, ErrorAt(n, "column %d: not in this file", n.Column)
		}
		_, size := utf8.DecodeRune(f.data[pos:])
		pos += size
	}
	return pos, nil
}

// Line returns the number of the line that offset lies in, from 1.
func (f *File) Line(offset int) int {
	return max(1, sort.SearchInts(f.lines, offset+1))
}

// lineEnd returns the offsets after the last character of a line and after its break; they are equal for a last line
// without one.
func (f *File) lineEnd(line int) (content, next int) {
	if line >= len(f.lines) {
		return len(f.data), len(f.data)
	}
	next = f.lines[line]
	content = f.lines[line-1]
	for content < next && breakLen(f.data[content:]) == 0 {
		content++
	}
	return content, next
}

// LineEnding returns the file's first line break, "\n" if it has none.
func (f *File) LineEnding() string {
	if len(f.lines) < 2 {
		return "\n"
	}
	content, next := f.lineEnd(1)
	return string(f.data[content:next])
}

// KeyIndent returns the white space before a new sibling of a block mapping's key on its own line. Dashes of lists
// count as space, and an explicit key ("? key") begins at its question mark.
func (f *File) KeyIndent(key *yaml.Node) string {
	column := key.Column - 1
	if pos, err := f.Offset(key); err == nil {
		before := bytes.TrimRight(f.data[f.lines[key.Line-1]:pos], " \t")
		if bytes.HasSuffix(before, []byte("?")) {
			column = utf8.RuneCount(before) - 1
		}
	}
	return strings.Repeat(" ", column)
}

// InsertLine returns the edit that inserts text as a line after the line of offset, with that line's break. A file
// without a final newline stays without.
func (f *File) InsertLine(offset int, text string) Edit {
	content, next := f.lineEnd(f.Line(offset))
	if content == next {
		return Edit{Start: next, End: next, Text: f.LineEnding() + text}
	}
	return Edit{Start: next, End: next, Text: text + string(f.data[content:next])}
}

// Scalar returns the byte range [start, end) of a scalar, including quotes and without anchor and tag, or of an alias
// ("*name"). Empty values, block scalars and plain scalars that span lines have no range.
func (f *File) Scalar(n *yaml.Node) (start, end int, err error) {
	start, err = f.Offset(n)
	if err != nil {
		return 0, 0, err
	}
	if n.Kind == yaml.AliasNode {
		return f.spelled(n, start, "*"+n.Value)
	}
	if n.Kind != yaml.ScalarNode {
		return 0, 0, ErrorAt(n, "not a scalar")
	}
	start += len(properties().Find(f.data[start:]))
	var quoted []byte
	switch {
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return 0, 0, ErrorAt(n, "a block scalar")
	case n.Style&yaml.SingleQuotedStyle != 0:
		quoted = singleQuoted().Find(f.data[start:])
	case n.Style&yaml.DoubleQuotedStyle != 0:
		quoted = doubleQuoted().Find(f.data[start:])
	case n.Value == "":
		return 0, 0, ErrorAt(n, "an empty value")
	default:
		return f.spelled(n, start, n.Value)
	}
	if quoted == nil || !f.spells(quoted, n.Value) {
		return 0, 0, ErrorAt(n, "the quoted scalar was not found where the parser saw it")
	}
	return start, start + len(quoted), nil
}

const (
	breaks   = "\n\r\u0085\u2028\u2029" // YAML 1.1's, as in breakLen
	property = "[&!][^ \t" + breaks + "]*(?:[ \t" + breaks + "]|#[^" + breaks + "]*)*"
)

var (
	// properties matches anchor and tag with the space or comments after them. No scalar can begin with & or !.
	properties   = lazyregexp.New("^(?:" + property + ")*")
	singleQuoted = lazyregexp.New(`^'(?:[^']|'')*'`)
	doubleQuoted = lazyregexp.New(`(?s)^"(?:[^"\\]|\\.)*"`)
)

func (f *File) spelled(n *yaml.Node, start int, text string) (int, int, error) {
	if !bytes.HasPrefix(f.data[start:], []byte(text)) {
		return 0, 0, ErrorAt(n, "a plain scalar over several lines")
	}
	return start, start + len(text), nil
}

// spells reports whether the quoted bytes decode to value.
func (f *File) spells(quoted []byte, value string) bool {
	if f.json {
		var s string
		return json.Unmarshal(quoted, &s) == nil && s == value
	}
	inner := quoted[1 : len(quoted)-1]
	if !bytes.ContainsAny(inner, `\'`+breaks) {
		return string(inner) == value
	}
	var n yaml.Node
	if yaml.Unmarshal(quoted, &n) != nil || len(n.Content) != 1 {
		return false
	}
	return n.Content[0].Value == value
}

// Replace returns the edit that gives a scalar another value in its own quoting. A plain scalar accepts only a value
// that is plain everywhere: letters, digits and ._-/:@+ beginning with a letter or digit, not ending with a colon.
func (f *File) Replace(n *yaml.Node, value string) (Edit, error) {
	start, end, err := f.Scalar(n)
	if err != nil {
		return Edit{}, err
	}
	if n.Kind != yaml.ScalarNode {
		return Edit{}, ErrorAt(n, "an alias")
	}
	for _, r := range value {
		if isControl(r) || breakLen([]byte(string(r))) > 0 {
			return Edit{}, ErrorAt(n, "value %q: control character or line break", value)
		}
	}
	switch {
	case f.json:
		return Edit{start, end, quoteJSON(value)}, nil
	case n.Style&yaml.SingleQuotedStyle != 0:
		return Edit{start, end, "'" + strings.ReplaceAll(value, "'", "''") + "'"}, nil
	case n.Style&yaml.DoubleQuotedStyle != 0:
		return Edit{start, end, `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`}, nil
	case !plainSafe(value):
		return Edit{}, ErrorAt(n, "value %q: needs quotes, and there are none to keep", value)
	}
	return Edit{start, end, value}, nil
}

// emptyValue matches the colon after a key, in the line of the key, and what may follow it where no value is written.
var emptyValue = lazyregexp.New("^[ \t]*:(?:[ \t,}" + breaks + "]|$)")

// ReplaceNull returns the edit that gives a key another value than null: in its place, or after the colon if nothing is
// written there. A null with a tag or an anchor is an error.
func (f *File) ReplaceNull(key, null *yaml.Node, value string) (Edit, error) {
	switch {
	case null.Anchor != "" || null.Style&yaml.TaggedStyle != 0:
		return Edit{}, ErrorAt(null, "null with a tag or an anchor")
	case null.Value != "":
		return f.Replace(null, value)
	case !plainSafe(value):
		return Edit{}, ErrorAt(null, "value %q: needs quotes", value)
	}
	_, end, err := f.Scalar(key)
	if err != nil {
		return Edit{}, err
	}
	colon := emptyValue().Find(f.data[end:])
	if colon == nil {
		return Edit{}, ErrorAt(null, "no colon after the key")
	}
	end += bytes.IndexByte(colon, ':') + 1
	return Edit{end, end, " " + value}, nil
}

func plainSafe(value string) bool {
	for i := range len(value) {
		c := value[i]
		alnum := c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !alnum && (i == 0 || !strings.ContainsRune("._-/:@+", rune(c))) {
			return false
		}
	}
	return value != "" && !strings.HasSuffix(value, ":")
}

// Same reports whether two nodes are written with the same kinds, tags, values, anchors, aliases and styles in the same
// order. It ignores comments and positions: yaml.v3 attaches a comment to one neighbour or the other depending on blank
// lines; edits keep the bytes of comments anyway. instead maps nodes of a to their replacements.
func Same(a, b *yaml.Node, instead map[*yaml.Node]*yaml.Node) bool {
	if other, ok := instead[a]; ok {
		a = other
	}
	if a.Kind != b.Kind || a.Value != b.Value || a.Anchor != b.Anchor || a.Style != b.Style ||
		a.ShortTag() != b.ShortTag() || len(a.Content) != len(b.Content) {
		return false
	}
	for i := range a.Content {
		if !Same(a.Content[i], b.Content[i], instead) {
			return false
		}
	}
	return true
}
