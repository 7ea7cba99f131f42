// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"cmp"
	"fmt"
	"slices"
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
