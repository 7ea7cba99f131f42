// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/fleet"
)

// The phases of long work, see Progress.
const (
	PhaseAsking      = "asking"
	PhaseConfirming  = "confirming"
	PhaseResolving   = "resolving"
	PhaseDownloading = "downloading"
	PhaseUnpacking   = "unpacking"

	PhaseChanging  = "changing"
	PhaseReturning = "returning"
	PhaseLocking   = "locking"
	PhaseWaiting   = "waiting"
	PhaseProving   = "proving"

	PhaseDone        = "done"
	PhaseFailed      = "failed"
	PhaseInterrupted = "interrupted"
)

// Progress is the progress of long work.
type Progress struct {
	Reference string `json:"reference" dbus:"reference"`
	// Phase is, of a poll, asking or confirming; of an apply changing and of a rollback
	// returning, with Edits, then locking, waiting or proving; of a pull resolving, downloading or
	// unpacking. The last report of a reference is done, failed or interrupted.
	Phase string `json:"phase" dbus:"phase"`
	// Ended is the phase that has ended so; empty for a pull.
	Ended       string `json:"ended,omitempty" dbus:"ended"`
	PodManifest string `json:"podManifest,omitempty" dbus:"podManifest"` // of an apply or a rollback
	Done        int64  `json:"done,omitempty" dbus:"done"`               // bytes
	Total       int64  `json:"total,omitempty" dbus:"total"`             // bytes; 0: not known
	Edits       []Edit `json:"edits,omitempty"`                          // of the pod manifest
	// Lock is the lock of the fleet from now on; nil: as before.
	Lock *fleet.LockStatus `json:"-"`
}

// UpdatePulls updates the list of running pulls, sorted by reference.
func UpdatePulls(pulls []Progress, p Progress) []Progress {
	var out []Progress
	for _, other := range pulls {
		if other.Reference != p.Reference {
			out = append(out, other)
		}
	}
	switch p.Phase {
	case PhaseResolving, PhaseDownloading, PhaseUnpacking:
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Progress) int { return strings.Compare(a.Reference, b.Reference) })
	return out
}
