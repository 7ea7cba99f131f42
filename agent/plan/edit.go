// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// edits returns the changes of images and pull policies in the pod's offer.
func (f *facts) edits(v follow.PodView, p PodPlan) []status.Edit {
	var out []status.Edit
	for _, i := range p.Images {
		if i.Change == "" {
			continue
		}
		e := status.Edit{Container: i.Want.Image.Container, Field: status.EditImage, From: i.From, To: i.Target.Name()}
		if e.From == e.To { // the names are equal: show the tags
			e.From, e.To = i.Want.OnDisk.Tag, i.Target.Tag
		}
		if e.From == e.To {
			e.From, e.To = withDigest(e.From, i.Running.Digest), withDigest(e.To, i.Target.Digest)
		}
		if e.From != e.To {
			out = append(out, e)
		}
	}
	if v.Disk == nil || !p.Waiting {
		return out
	}
	return append(out, follow.PullPolicyEdits(*v.Disk, p.Wanted)...)
}

func withDigest(tag string, d digest.Digest) string {
	if d == "" {
		return tag
	}
	return fmt.Sprintf("%s (%.12s)", tag, d.Encoded())
}
