// SPDX-License-Identifier: Apache-2.0

package follow

import "github.com/kubic-project/image-update-agent/manifests"

// isKubeadm reports whether an image is the component of a control plane that
// kubeadm has set up. A pod manifest with a template is its packager's.
func (v *PodView) isKubeadm(i manifests.Image) bool {
	name := v.Pod.Component
	return v.Template == nil && name != "" && i.Kind == manifests.KindContainer && i.Container == name
}
