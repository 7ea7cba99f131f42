// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"
	"strings"
)

// The phases of an apply, see Progress.
const (
	PhaseChanging  = "changing"
	PhaseReturning = "returning"
	PhaseWaiting   = "waiting"
	PhaseProving   = "proving"
)

// Progress is how far long work has come. Total is zero while it is unknown.
type Progress struct {
	Reference string `json:"reference"`
	// Phase is asking or confirming; of an apply changing, of a rollback returning, before
	// it begins, with Edits; then waiting or proving; of a pull, of which several may run
	// side by side, resolving, downloading or unpacking, and done, failed or interrupted at last.
	Phase string `json:"phase"`
	Done  int64  `json:"done,omitempty"`  // bytes
	Total int64  `json:"total,omitempty"` // bytes
	Edits []Edit `json:"edits,omitempty"` // what is about to change of the pod manifest Reference
}

// Pulling takes a report into the list of pulls that are under way, sorted by
// reference, and returns the new list.
func Pulling(pulls []Progress, p Progress) []Progress {
	var out []Progress
	for _, other := range pulls {
		if other.Reference != p.Reference {
			out = append(out, other)
		}
	}
	switch p.Phase {
	case "resolving", "downloading", "unpacking":
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Progress) int { return strings.Compare(a.Reference, b.Reference) })
	return out
}
