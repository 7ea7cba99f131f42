// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
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
