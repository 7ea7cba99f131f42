// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
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

// Activity is the current work of the daemon, in addition to the state of the node.
type Activity string

// The activities.
const (
	ActivityNone     Activity = ""
	ActivityChecking Activity = "checking" // asking sources
	ActivityStaging  Activity = "staging"  // pulling releases
	ActivityApplying Activity = "applying" // restarting and verifying pods
)

// activities by the phase of a progress. Other phases end work, and do not say what follows.
var activities = map[string]Activity{
	PhaseAsking: ActivityChecking, PhaseConfirming: ActivityChecking,
	PhaseResolving: ActivityStaging, PhaseDownloading: ActivityStaging, PhaseUnpacking: ActivityStaging,
	PhaseChanging: ActivityApplying, PhaseReturning: ActivityApplying, PhaseWaiting: ActivityApplying,
	PhaseLocking: ActivityApplying, PhaseVerifying: ActivityApplying,
}

// Activity returns the daemon's activity; false if the progress does not show it.
func (p Progress) Activity() (Activity, bool) {
	a, ok := activities[p.Phase]
	return a, ok
}

// heartbeatInterval is well below the timeout of the service manager's watchdog.
const heartbeatInterval = 10 * time.Second

// Reporter reports the progress of a cycle. It is safe for concurrent use.
type Reporter struct {
	To func(Progress) // nil: no reports; called by one goroutine at a time

	mu            sync.Mutex // guards the fields below
	last          Progress
	number, count int
}

// Number makes the reports of pods say that their pod is number `number` of count.
func (r *Reporter) Number(number, count int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number, r.count = number, count
}

// Report reports progress.
func (r *Reporter) Report(p Progress) {
	if r.To == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.PodManifest != "" {
		p.Number, p.Count = r.number, r.count
	}
	r.last = p
	r.To(p)
}

// Heartbeat repeats the last progress until stop is called, while the daemon waits for
// another program. The call must have a timeout: a request has a minute, a tag list five, a
// pull by CRI 15, a staging an hour. Local I/O sends no heartbeat, so the watchdog catches
// hangs.
func (r *Reporter) Heartbeat() (stop func()) {
	if r.To == nil {
		return func() {}
	}
	done := make(chan struct{})
	var beat sync.WaitGroup
	beat.Go(func() {
		tick := time.NewTicker(heartbeatInterval)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				r.mu.Lock()
				r.To(r.last)
				r.mu.Unlock()
			}
		}
	})
	return func() { close(done); beat.Wait() }
}

// End reports the end of the work of a progress, with its error.
func (r *Reporter) End(p Progress, err error) {
	p.Ended, p.Phase = p.Phase, PhaseDone
	switch {
	case errors.Is(err, context.Canceled):
		p.Phase = PhaseInterrupted
	case err != nil:
		p.Phase = PhaseFailed
	}
	r.Report(p)
}

// WhileWaiting runs work on a pod with heartbeats. The first heartbeat reports PhaseWaiting, so short work reports
// nothing.
func (r *Reporter) WhileWaiting(file, pod string, work func() error) error {
	r.mu.Lock()
	r.last = Progress{Reference: pod, Phase: PhaseWaiting, PodManifest: file, Number: r.number, Count: r.count}
	r.mu.Unlock()
	defer r.Heartbeat()()
	return work()
}
