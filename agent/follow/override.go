// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/manifests"
)

// Overridden is what stands in the place of an image, while it does: in a pod
// manifest that has no template, as long as nobody has written something else.
func (v *PodView) Overridden(i manifests.Image) (record.PinnedImage, bool) {
	at, ok := v.Override.Images[node.PlaceOf(i)]
	if !ok || v.Template == nil && !v.Override.Pending && !v.Named[node.PlaceOf(i)] {
		return record.PinnedImage{}, false
	}
	return at, true
}
