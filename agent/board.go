// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/agent/watch"
)

// Notifier tells the service manager how the loop is doing.
type Notifier interface {
	// Status is a sentence for `systemctl status`.
	Status(text string)
	// Heartbeat reports that the loop works.
	Heartbeat()
}

// board shows the status, with the progress of the cycle that runs, to whoever reads or
// listens. It is safe for concurrent use.
type board struct {
	notify  Notifier
	watched *watch.Watched
	now     func() time.Time

	mu         sync.Mutex // guards what follows
	status     status.Status
	lastReport status.Status // by the last cycle
	changed    chan struct{} // closed, and another one made, when the status changes

	listenersMu sync.Mutex // guards listeners, also while they are called
	listeners   map[int]func(status.Progress)
	nextID      int
}

// show shows what a cycle has found.
func (b *board) show(s status.Status) {
	b.mu.Lock()
	b.lastReport = s
	s = b.watched.Correct(s)
	b.status = s
	b.signalChange()
	b.mu.Unlock()
	b.notify.Status(status.Sentence(s))
	b.notify.Heartbeat()
}

// correct shows at once what was seen beside a running cycle, which may take long.
func (b *board) correct() {
	b.mu.Lock()
	s := b.watched.Correct(b.lastReport)
	changed := b.status.State != status.StateApplying && (s.State != b.status.State || s.Reason != b.status.Reason)
	if changed {
		s.Progress, s.Pulls, s.Interrupted = b.status.Progress, b.status.Pulls, b.status.Interrupted
		b.status = s
		b.signalChange()
	}
	b.mu.Unlock()
	if changed {
		b.notify.Status(status.Sentence(s))
	}
}

// Changed is closed when the status becomes another one, its progress aside. Who
// takes it before the status misses no change.
func (b *board) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// signalChange wakes those who wait for Changed. The caller holds the lock.
func (b *board) signalChange() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// Status is the node as of the last cycle, with the progress of the one that runs.
func (b *board) Status() status.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

// Listen calls f with all progress until the returned function has returned. f must
// neither wait for the loop nor take its time: the work waits for it.
func (b *board) Listen(f func(status.Progress)) (stop func()) {
	b.listenersMu.Lock()
	defer b.listenersMu.Unlock()
	id := b.nextID
	b.nextID++
	b.listeners[id] = f
	return func() {
		b.listenersMu.Lock()
		defer b.listenersMu.Unlock()
		delete(b.listeners, id)
	}
}

// showProgress shows how far the work is and passes it on. The zero Progress says only that
// the loop lives.
func (b *board) showProgress(p status.Progress) {
	defer b.notify.Heartbeat()
	if p.Phase == "" {
		return
	}
	b.mu.Lock()
	b.status.Progress = &p
	b.status.Pulls = status.UpdatePulls(b.status.Pulls, p)
	if p.Phase == status.PhaseWaiting || p.Phase == status.PhaseProving {
		b.setApplying(p.Reference + " is " + p.Phase) // also where nobody has asked for it
	}
	b.mu.Unlock()
	b.listenersMu.Lock()
	for _, f := range b.listeners {
		f(p)
	}
	b.listenersMu.Unlock()
}

// showInterrupted shows that something goes on after a person's request.
func (b *board) showInterrupted(intr *status.Interruption) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status.Interrupted = intr
	b.status.Progress, b.status.Pulls = nil, nil
	b.signalChange()
}

// showApplying shows that something is under way.
func (b *board) showApplying(reason string) {
	b.mu.Lock()
	b.setApplying(reason)
	s := b.status
	b.mu.Unlock()
	b.notify.Status(status.Sentence(s))
}

// setApplying changes the state in the status while something is under way. The
// caller holds the lock.
func (b *board) setApplying(reason string) {
	if b.status.State != status.StateApplying {
		b.status.State, b.status.Since, b.status.Reason = status.StateApplying, b.now().UTC(), reason
		b.status.Reasons = []status.Reason{{Kind: status.KindApplying, Text: reason}}
		b.signalChange()
	}
}
