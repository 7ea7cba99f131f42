// SPDX-License-Identifier: Apache-2.0

package agent

import "strings"

// short tells that a release waits for room, by what its last pull said that it
// needs: so nobody is asked anew while there is none.
func (d *decider) short(r Release) (*ShortageError, bool) {
	n, is := d.inv.Wanting[releaseKey(r.Repository, r.Digest)]
	if !is || d.inv.has(r.Digest) { // what kubelet has pulled meanwhile needs none
		return nil, false
	}
	return d.policy.Reserve.lacks(d.inv.Filesystem, n, 0)
}

func (d *decider) isShort(i ImagePlan) bool {
	_, is := d.short(i.Target)
	return is
}

// cramped holds what waits for room, and notes how much of it is missing.
func (d *decider) cramped(images []ImagePlan) []Hold {
	var reasons []string
	for n, i := range images {
		if s, is := d.short(i.Target); is {
			images[n].Shortage = s
			reasons = append(reasons, releaseName(i.Target)+": "+s.Error())
		}
	}
	if len(reasons) == 0 {
		return nil
	}
	return []Hold{{Name: HoldDisk, Reason: strings.Join(reasons, "; ")}}
}

// releaseName is a release as a person calls it.
func releaseName(r Release) string { return r.Repository + ":" + r.Name() }
