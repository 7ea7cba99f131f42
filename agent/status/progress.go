// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"
	"strings"
	"time"

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
	PhaseVerifying = "verifying"

	PhaseDone        = "done"
	PhaseFailed      = "failed"
	PhaseInterrupted = "interrupted"
)

// Progress is the progress of long work.
type Progress struct {
	Reference string `json:"reference" dbus:"reference"`
	// Phase of a poll: asking or confirming; of an apply: changing, and of a rollback: returning, with Edits, then
	// locking, waiting or verifying; of a pull: resolving, downloading or unpacking. The last report of a reference is
	// done, failed or interrupted.
	Phase string `json:"phase" dbus:"phase"`
	// Ended is the phase that has ended; empty for a pull.
	Ended       string `json:"ended,omitempty" dbus:"ended"`
	PodManifest string `json:"podManifest,omitempty" dbus:"podManifest"` // of an apply or a rollback
	Done        int64  `json:"done,omitempty" dbus:"done"`               // bytes
	Total       int64  `json:"total,omitempty" dbus:"total"`             // bytes; 0 if unknown
	Edits       []Edit `json:"edits,omitempty"`                          // of the pod manifest
	// Number and Count: the pod manifest is number Number of the Count that restart; 0 if that is not known.
	Number int `json:"number,omitempty" dbus:"number"`
	Count  int `json:"count,omitempty" dbus:"count"`
	// The health check began at Since. It fails at Deadline, and succeeds at HealthyAt if the pod keeps running.
	Since     time.Time `json:"since,omitzero" dbus:"since"`
	Deadline  time.Time `json:"deadline,omitzero" dbus:"deadline"`
	HealthyAt time.Time `json:"healthyAt,omitzero" dbus:"healthyAt"`
	// Reason says why the pod does not run yet, in the words of kubelet or CRI; empty if it runs.
	Reason string `json:"reason,omitempty" dbus:"reason"`
	// Lock is the fleet lock from now on; nil if unchanged.
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
