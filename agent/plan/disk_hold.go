// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// shortage returns the disk space that a release lacks, by the size that its last pull reported.
func (f *facts) shortage(r release.Release) (*policy.ShortageError, bool) {
	n, is := f.inv.BlockedBySpace[release.Key(r.Repository, r.Digest)]
	if !is || f.held.Has(r.Digest) {
		return nil, false
	}
	return f.policy.Reserve.Shortage(f.inv.Filesystem, n, 0)
}

func (f *facts) lacksSpace(i ImagePlan) bool {
	_, is := f.shortage(i.Target)
	return is
}

// diskHolds returns a hold for images that lack disk space, and stores each shortage.
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
