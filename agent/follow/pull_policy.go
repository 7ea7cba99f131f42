// SPDX-License-Identifier: Apache-2.0

package follow

import "github.com/kubic-project/image-update-agent/agent/policy"

// PullPolicy is what rendering writes: into what a template renders the one of all, into
// another pod manifest only one that is asked for. Empty: what is written stays.
func (v *PodView) PullPolicy(p policy.Policy) string {
	if v.Template != nil {
		return p.PullPolicy
	}
	return p.ManagedPullPolicy
}
