// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/agent/watch"
)

// Notifier reports the state of the loop to the service manager.
type Notifier interface {
	// Status sets the text of `systemctl status`.
	Status(text string)
	// Heartbeat reports that the loop works.
	Heartbeat()
}

// board publishes the status and the progress of the running cycle. It is safe for concurrent
// use.
type board struct {
	notify  Notifier
	watched *watch.Watched
	now     func() time.Time

	mu         sync.Mutex // guards the fields below
	status     status.Status
	lastReport status.Status // of the last cycle
	changed    chan struct{} // closed and replaced when the status changes

	listenersMu sync.Mutex // guards the fields below
	listeners   map[int]func(status.Progress)
	nextID      int
}

// show publishes the status of a cycle.
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

// correct publishes containers that ended or started during a cycle.
func (b *board) correct() {
	b.mu.Lock()
	s := b.watched.Correct(b.lastReport)
	changed := !b.status.HasReason(status.KindApplying) &&
		(s.State != b.status.State || s.Reason != b.status.Reason || !reflect.DeepEqual(s.Images, b.status.Images))
	if changed {
		s.Progress, s.Pulls, s.Interrupted = b.status.Progress, b.status.Pulls, b.status.Interrupted
		s.Activity = b.status.Activity
		b.status = s
		b.signalChange()
	}
	b.mu.Unlock()
	if changed {
		b.notify.Status(status.Sentence(s))
	}
}

// Changed returns a channel that is closed when the status changes, except its progress. Call
// it before Status to miss no change.
func (b *board) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// signalChange closes the channel of Changed. The caller holds the lock.
func (b *board) signalChange() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// Status returns the status of the last cycle with the progress of the running one.
func (b *board) Status() status.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

// Listen calls f for each progress until stop is called. f must not block.
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

// showProgress publishes progress. The zero Progress is only a heartbeat.
func (b *board) showProgress(p status.Progress) {
	defer b.notify.Heartbeat()
	if p.Phase == "" {
		return
	}
	b.mu.Lock()
	if b.status.Progress = &p; p.Ended != "" {
		b.status.Progress = nil
	}
	b.status.Pulls = status.UpdatePulls(b.status.Pulls, p)
	if a, ok := p.Activity(); ok && a != b.status.Activity {
		b.status.Activity = a
		b.signalChange()
	}
	if p.Lock != nil {
		b.status.Lock, b.lastReport.Lock = p.Lock, p.Lock
	}
	if p.Phase == status.PhaseWaiting || p.Phase == status.PhaseVerifying {
		b.setApplying(p.Reference+" is "+p.Phase, plan.Named(p.PodManifest))
	}
	b.mu.Unlock()
	b.listenersMu.Lock()
	for _, f := range b.listeners {
		f(p)
	}
	b.listenersMu.Unlock()
}

// showInterrupted publishes that a request interrupted a cycle.
func (b *board) showInterrupted(intr *status.Interruption) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status.Interrupted = intr
	b.status.Progress, b.status.Pulls, b.status.Activity = nil, nil, status.ActivityNone
	b.signalChange()
}

// showApplying publishes that a request is running, and its selection.
func (b *board) showApplying(reason string, which plan.Which) {
	b.mu.Lock()
	b.setApplying(reason, which)
	s := b.status
	b.mu.Unlock()
	b.notify.Status(status.Sentence(s))
}

// setApplying sets the state to applying. The status still reports denied releases that run, and other pods that wait
// for approval. The caller holds the lock.
func (b *board) setApplying(reason string, which plan.Which) {
	if b.status.State == status.StateApplying {
		return
	}
	images := map[string][]string{}
	for _, i := range b.status.Images {
		images[i.PodManifest] = append(images[i.PodManifest], i.Image)
	}
	others := slices.DeleteFunc(status.OfAnyState(b.status.Reasons), func(r status.Reason) bool {
		return r.Kind == status.KindApproval && which.Names(r.PodManifest, images[r.PodManifest])
	})
	b.status.State, b.status.Since = status.StateApplying, b.now().UTC()
	b.status.Reasons = status.AddReason(others, status.Reason{Kind: status.KindApplying, Text: reason})
	b.status.Reason = status.SentenceOf(b.status.Reasons)
	b.signalChange()
}
