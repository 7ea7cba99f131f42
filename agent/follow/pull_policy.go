// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// PullPolicyEdits returns the pull policies that differ between two pod manifests.
func PullPolicyEdits(disk node.PodFile, wanted []byte) []status.Edit {
	was, errWas := disk.Parse()
	is, errIs := manifests.Parse(wanted)
	if errWas != nil || errIs != nil {
		return nil // rendering reports it
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
