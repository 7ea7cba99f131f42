// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// short tells that a release waits for room, by what its last pull said that it
// needs: so nobody is asked anew while there is none.
func (d *decider) short(r release.Release) (*policy.ShortageError, bool) {
	n, is := d.inv.Wanting[release.Key(r.Repository, r.Digest)]
	if !is || d.inv.Has(r.Digest) { // what kubelet has pulled meanwhile needs none
		return nil, false
	}
	return d.policy.Reserve.Lacks(d.inv.Filesystem, n, 0)
}

func (d *decider) isShort(i ImagePlan) bool {
	_, is := d.short(i.Target)
	return is
}

// diskHolds holds what waits for room, and notes how much of it is missing.
func (d *decider) diskHolds(images []ImagePlan) []status.Hold {
	var reasons []string
	for n, i := range images {
		if s, is := d.short(i.Target); is {
			images[n].Shortage = s
			reasons = append(reasons, release.FullName(i.Target)+": "+s.Error())
		}
	}
	if len(reasons) == 0 {
		return nil
	}
	return []status.Hold{{Name: status.HoldDisk, Reason: strings.Join(reasons, "; ")}}
}
