// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// BrokenTag is a tag of a pod manifest whose record on the node names no image: kubelet's pull got a login page, say.
type BrokenTag struct {
	Record     node.HeldImage
	Repository string
	// Digest is what the tag is to name again: what runs, else what ran well; empty: the node has neither.
	Digest digest.Digest
}

// BrokenTags returns the tags of pod manifests whose records name no image, each once. A denied digest is not returned
// to.
func BrokenTags(inv node.Inventory, views []PodView, rec record.Record) []BrokenTag {
	broken := map[string]node.HeldImage{}
	for _, h := range inv.Held {
		if h.NotImage != "" && !h.Pin {
			broken[h.Name] = h
		}
	}
	if len(broken) == 0 {
		return nil
	}
	running := Running(inv, views)
	var out []BrokenTag
	for _, v := range views {
		for _, w := range v.Wants {
			h, is := broken[w.OnDisk.String()]
			if !is {
				continue
			}
			good := rec.Good[record.GoodKey(v.File, w.Image.Container)]
			usable := slices.DeleteFunc(append(slices.Clone(running[w.Ask]), good.Running), func(d digest.Digest) bool {
				_, denied := rec.Denied[release.Key(w.OnDisk.Repository, d)]
				return d == "" || denied || !inv.Has(d) || good.Repository != "" && good.Repository != w.OnDisk.Repository
			})
			tag := BrokenTag{Record: h, Repository: w.OnDisk.Repository}
			if len(usable) > 0 {
				tag.Digest = usable[0]
			}
			out = append(out, tag)
			delete(broken, h.Name)
		}
	}
	return out
}
