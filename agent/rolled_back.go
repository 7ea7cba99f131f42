// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"maps"
	"slices"
)

// byHand is why a release that a person rolled back is denied.
const byHand = "rolled back by hand"

// rolledBack is what a pod was brought back from; nil: it runs what it follows.
func (r *Record) rolledBack(file string) *RolledBack {
	o, ok := r.Overrides[file]
	if !ok || o.Pending {
		return nil
	}
	back := RolledBack{At: o.At, Reason: o.Reason, ByHand: o.ByHand, Runs: o.tags()}
	for _, key := range slices.Sorted(maps.Keys(r.Denied)) {
		if d := r.Denied[key]; d.PodManifest == file {
			back.Left = append(back.Left, d.Name)
			back.ByHand = back.ByHand || d.ByHand
		}
	}
	if len(back.Left) == 0 {
		return nil // it is only for as long as the registry is away
	}
	return &back
}

// reason says why nothing newer is offered, and how to go forward.
func (b RolledBack) reason(file string) string {
	return fmt.Sprintf("%s was rolled back to %s and %s is denied, until apply --retry %s or a newer release",
		file, few(b.Runs), few(b.Left), file)
}
