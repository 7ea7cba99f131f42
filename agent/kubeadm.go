// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"

	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

// isKubeadm reports whether an image is the component of a control plane that
// kubeadm has set up. A pod manifest with a template is its packager's.
func (v *podView) isKubeadm(i manifests.Image) bool {
	name := v.pod.Component
	return v.template == nil && name != "" && i.Kind == manifests.KindContainer && i.Container == name
}

// refusesUpgrade refuses more than a patch of a control plane of kubeadm, unless a
// pattern of `allow` matches one of its names: a new tag is no `kubeadm upgrade`.
func (r Rule) refusesUpgrade(change tags.Change, names ...string) (Refusal, bool) {
	allowed := func(name string) bool { return matching(r.Allow, name) != "" }
	if !r.kubeadm || change <= tags.Patch || slices.ContainsFunc(names, allowed) {
		return Refusal{}, false
	}
	return Refusal{
		Tag: names[0], Rule: RuleKubeadm, Key: "allow",
		Reason: change.String() + " of a control plane that kubeadm owns: use kubeadm upgrade, or allow: [" + names[0] + "]",
	}, true
}
