// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

// uses counts for each node how often it is reached from the root of the first document, with aliases followed and
// merge keys applied: the number of places that an edit would change. It is nil for a document without anchors, where
// every node is reached once.
type uses map[*yaml.Node]int

func countUses(root *yaml.Node) uses {
	if !hasAnchor(root) {
		return nil
	}
	u := uses{}
	u.visit(root)
	return u
}

func (u uses) visit(n *yaml.Node) {
	n = yamledit.Resolve(n)
	u[n]++
	if n.Kind != yaml.MappingNode {
		for _, child := range n.Content {
			u.visit(child)
		}
		return
	}
	own := 0
	for _, field := range yamledit.Fields(n) {
		u.visit(field.Key)
		u.visit(field.Value)
		if !field.Merged {
			own++
		}
	}
	if own == len(n.Content)/2 {
		return
	}
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].ShortTag() == "!!merge" {
			u.source(n.Content[i+1])
		}
	}
}

// source counts each mapping behind a merge key as used once more, because a key inserted into it appears here as well.
func (u uses) source(n *yaml.Node) {
	n = yamledit.Resolve(n)
	u[n]++
	if n.Kind == yaml.SequenceNode {
		for _, item := range n.Content {
			u.source(item)
		}
	}
}

// isShared reports whether an anchor makes n the value of places outside sites.
func (f *File) isShared(n *yaml.Node, sites []int) bool {
	return f.uses != nil && f.uses[n] != len(sites)
}

func hasAnchor(n *yaml.Node) bool {
	return n.Anchor != "" || slices.ContainsFunc(n.Content, hasAnchor)
}

// judgeAnchors marks a value as not editable if an anchor also gives it to places that are not an image of this pod.
func (f *File) judgeAnchors(root *yaml.Node) {
	if f.uses = countUses(root); f.uses == nil {
		return
	}
	images := map[*yaml.Node]int{}
	for i, s := range f.sites {
		if f.Images[i].Editable {
			images[yamledit.Resolve(s.value)]++
		}
	}
	for i, s := range f.sites {
		img := &f.Images[i]
		if n := yamledit.Resolve(s.value); img.Editable && f.uses[n] != images[n] {
			img.Editable, img.Reason = false, ReasonShared
		}
	}
}
