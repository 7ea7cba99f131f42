// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// LocalRegistryFacts returns the input of the local registry's table, except for steps under way.
func LocalRegistryFacts(inv node.Inventory, rec record.Record, p policy.Policy) localregistry.Facts {
	f := localregistry.Facts{
		Pulled: map[string]digest.Digest{}, Private: rec.Private, ServePrivate: p.ServePrivate,
		Known: func(p release.Pin) release.Release { return rec.Releases[release.Key(p.Repository, p.Digest)] },
		Denied: func(d digest.Digest) (string, bool) {
			no, is := rec.Denies(release.Release{Digest: d})
			return no.Reason, is
		},
	}
	for _, h := range inv.Held {
		switch {
		case h.Pin && h.Complete:
			pin := release.Pin{Repository: h.Repository, Digest: h.Digest}
			f.Images = append(f.Images, localregistry.Image{Pin: pin, MediaType: h.MediaType, Size: h.Size})
		case !h.Pin && !h.Staged:
			f.Pulled[h.Name] = h.Digest
		}
	}
	for _, v := range ReadPods(inv, rec, p) {
		if v.Err != nil || v.Disk == nil {
			continue
		}
		for _, w := range v.Wants {
			if node.IsContainer(w.Image) && w.Ask.Repository != "" && w.OnDisk.Repository != "" {
				f.Followed = append(f.Followed, v.onLocalRegistry(w, rec))
			}
		}
	}
	return f
}

// onLocalRegistry returns the candidate digests for a tag that a container follows.
func (v *PodView) onLocalRegistry(w Want, rec record.Record) localregistry.Followed {
	place, on := node.PlaceOf(w.Image), w.OnDisk.Tagged()
	out := localregistry.Followed{Reference: on}
	at := v.Override.Images[place]
	if v.Override.Pending && at.Repository == on.Repository && at.Follow == on.Tag {
		out.Pending = at.Digest
	}
	if at := v.Bound[place]; at.Repository == on.Repository {
		out.Written = at.Digest
	}
	if g := rec.Good[record.GoodKey(v.File, w.Image.Container)]; g.Repository == on.Repository {
		out.Good = g.Running
	}
	return out
}
