// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// OwnHostFacts are what the own host's table is made from, but for what is under way.
func OwnHostFacts(inv node.Inventory, rec record.Record, p policy.Policy) ownhost.Facts {
	f := ownhost.Facts{
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
			f.Images = append(f.Images, ownhost.Image{Pin: pin, MediaType: h.MediaType, Size: h.Size})
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
				f.Followed = append(f.Followed, v.onOwnHost(w, rec))
			}
		}
	}
	return f
}

// onOwnHost returns what speaks for the digests of a tag that a container follows.
func (v *PodView) onOwnHost(w Want, rec record.Record) ownhost.Followed {
	place, on := node.PlaceOf(w.Image), w.OnDisk.Tagged()
	out := ownhost.Followed{Reference: on}
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
