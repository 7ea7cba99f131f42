// SPDX-License-Identifier: Apache-2.0

package record

import (
	"maps"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// ByHand is why a release that a person rolled back is denied.
const ByHand = "rolled back by hand"

// RolledBack returns what a pod was rolled back from; nil: it was not.
func (r *Record) RolledBack(file string) *status.RolledBack {
	o, ok := r.Overrides[file]
	if !ok || o.Pending {
		return nil
	}
	back := status.RolledBack{At: o.At, Reason: o.Reason, ByHand: o.ByHand, Runs: o.tags()}
	for _, key := range slices.Sorted(maps.Keys(r.Denied)) {
		if d := r.Denied[key]; d.PodManifest == file {
			back.Denied = append(back.Denied, d.Name)
			back.ByHand = back.ByHand || d.ByHand
		}
	}
	if len(back.Denied) == 0 {
		return nil // the override pins a digest while the registry is away
	}
	return &back
}

// FailureKind returns the kind of reason for a pod that did not come up.
func (r *Record) FailureKind(file string) status.Kind {
	switch {
	case r.Overrides[file].Pending:
		return status.KindStep // its rollback is pending
	case r.Failed[file].Running == "" && r.RolledBack(file) != nil:
		return status.KindRolledBack
	default:
		return status.KindNotUp
	}
}
