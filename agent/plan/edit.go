// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// edits returns the changes of images and pull policies in the pod's offer.
func (pp podPlanner) edits(v follow.PodView, p PodPlan) []status.Edit {
	var out []status.Edit
	for _, i := range p.Images {
		if i.Change == "" {
			continue
		}
		e := status.Edit{Container: i.Want.Image.Container, Field: status.EditImage, From: i.From, To: i.Target.Name()}
		if e.From == e.To { // names of the same version: show the tags
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
	return append(out, policyEdits(*v.Disk, p.Wanted)...)
}

func withDigest(tag string, d digest.Digest) string {
	if d == "" {
		return tag
	}
	return fmt.Sprintf("%s (%.12s)", tag, d.Encoded())
}

// policyEdits returns the pull policies that differ between two pod manifests.
func policyEdits(disk node.PodFile, wanted []byte) []status.Edit {
	was, errWas := disk.Parse()
	is, errIs := manifests.Parse(wanted)
	if errWas != nil || errIs != nil {
		return nil // render reports it
	}
	before := map[string]manifests.Image{}
	for _, img := range was.Images {
		before[node.PlaceOf(img)] = img
	}
	var out []status.Edit
	for _, img := range is.Images {
		old, there := before[node.PlaceOf(img)]
		if there && node.Pulled(img) && old.PullPolicy != img.PullPolicy {
			out = append(
				out, status.Edit{Container: img.Container, Field: status.EditPullPolicy, From: old.PullPolicy, To: img.PullPolicy},
			)
		}
	}
	return out
}
