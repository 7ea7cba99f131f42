// SPDX-License-Identifier: Apache-2.0

package agent

import "github.com/kubic-project/image-update-agent/manifests"

// pullPolicy is what rendering writes: into what a template renders the one of all, into
// another pod manifest only one that is asked for. Empty: what is written stays.
func (v *podView) pullPolicy(p Policy) string {
	if v.template != nil {
		return p.PullPolicy
	}
	return p.ManagedPullPolicy
}

const pullNever = "Never"

// pullPolicyOf is what kubelet goes by, who reads Always where nothing is written and
// the tag is latest, or there is none.
func pullPolicyOf(i manifests.Image) string {
	if i.PullPolicy != "" {
		return i.PullPolicy
	}
	if ref := manifests.SplitReference(i.Reference); ref.Digest == "" && (ref.Tag == "" || ref.Tag == "latest") {
		return manifests.PullAlways
	}
	return manifests.PullIfNotPresent
}
