// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"sync"
	"time"
)

// heartbeatInterval is well below the timeout of the service manager's watchdog.
const heartbeatInterval = 10 * time.Second

// Reporter reports the progress of a cycle. It is safe for concurrent use.
type Reporter struct {
	To func(Progress) // nil: no reports; called by one goroutine at a time

	mu            sync.Mutex // guards the fields below
	last          Progress
	number, count int
}

// Number has the reports of pods say that theirs is the one of that number among count.
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
