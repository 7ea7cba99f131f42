// SPDX-License-Identifier: Apache-2.0

package status

import (
	"sync"
	"time"
)

// heartbeatInterval is how often the last progress is reported again while the work
// waits for another program: well within the patience of the service manager's
// watchdog.
const heartbeatInterval = 10 * time.Second

// Reporter reports the progress of a cycle. It is safe for concurrent use.
type Reporter struct {
	To func(Progress) // nil: nobody listens; called by one goroutine at a time

	mu   sync.Mutex
	last Progress
}

// Report passes progress on.
func (r *Reporter) Report(p Progress) {
	if r.To == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = p
	r.To(p)
}

// Heartbeat reports the last progress again and again, until stop is called: the work
// waits for another program, and lives. It is for calls that end by themselves: a
// request after a minute, a tag list after five, a pull in kubelet's name after 15, a
// staging after an hour. Local I/O sends no heartbeat, so the watchdog ends a daemon
// that hangs.
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

// WhileWaiting runs work on a pod with heartbeats. Mostly it is short: only a
// heartbeat reports that the pod is waited for.
func (r *Reporter) WhileWaiting(pod string, work func() error) error {
	r.mu.Lock()
	r.last = Progress{Reference: pod, Phase: PhaseWaiting}
	r.mu.Unlock()
	defer r.Heartbeat()()
	return work()
}
