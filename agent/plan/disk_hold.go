// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// shortage tells that a release waits for room, by what its last pull said that it
// needs: so nobody is asked anew while there is none.
func (f *facts) shortage(r release.Release) (*policy.ShortageError, bool) {
	n, is := f.inv.Wanting[release.Key(r.Repository, r.Digest)]
	if !is || f.inv.Has(r.Digest) { // what kubelet has pulled meanwhile needs none
		return nil, false
	}
	return f.policy.Reserve.Lacks(f.inv.Filesystem, n, 0)
}

func (f *facts) lacksSpace(i ImagePlan) bool {
	_, is := f.shortage(i.Target)
	return is
}

// diskHolds holds what waits for room, and notes how much of it is missing.
func (f *facts) diskHolds(images []ImagePlan) []status.Hold {
	var reasons []string
	for n, i := range images {
		if s, is := f.shortage(i.Target); is {
			images[n].Shortage = s
			reasons = append(reasons, release.FullName(i.Target)+": "+s.Error())
		}
	}
	if len(reasons) == 0 {
		return nil
	}
	return []status.Hold{{Name: status.HoldDisk, Reason: strings.Join(reasons, "; ")}}
}
