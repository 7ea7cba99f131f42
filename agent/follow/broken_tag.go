// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// BrokenTag is a tag of a pod manifest whose image record on the node is not an image: kubelet's pull got a login page,
// for example.
type BrokenTag struct {
	Record     node.HeldImage
	Repository string
	// Digest is the digest that the tag should name: the running one, or else the last known good one; empty if the
	// node has neither.
	Digest digest.Digest
}

// BrokenTags returns the tags of pod manifests with broken image records, each once. It never selects a denied digest.
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
	running, held := Running(inv, views), inv.Index()
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
				return d == "" || denied || !held.Has(d) || good.Repository != "" && good.Repository != w.OnDisk.Repository
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
