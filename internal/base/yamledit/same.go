// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"gopkg.in/yaml.v3"
)

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
