// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"gopkg.in/yaml.v3"
)

// Same tells whether two nodes are written with the same kinds, tags, values,
// anchors, aliases and styles in the same order. Comments and positions do not
// count: yaml.v3 attaches a comment to one neighbour or the other depending on
// blank lines, so they prove nothing; the bytes of comments are kept by
// construction. instead has the nodes that stand in the place of some of a.
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
