// SPDX-License-Identifier: Apache-2.0

// Package watch tracks which containers of the node must run. It turns runtime events into observations, and adds
// containers that ended during a cycle to the status.
//
// Polls are 12 hours apart; meanwhile kubelet picks up digests and people edit files. So the node is observed every ten
// minutes, and a second after an event. Events decide nothing: they only cause an observation.
package watch

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/wait"
)

// RuntimeEvents reports when containers start and end. An event is only a reason to observe the
// node.
type RuntimeEvents interface {
	// Watch calls handle from one goroutine until ctx ends. It continues after an outage of the runtime.
	Watch(ctx context.Context, handle func(RuntimeEvent))
}

// RuntimeEvent is a container that has started or ended. The zero value: events may have been
// missed.
type RuntimeEvent struct {
	ContainerID string
	Ended       bool
}

// eventDelay is the time from an event to the observation. kubelet restarts a container within a second, and events
// come in bursts, so events cause at most one observation per second.
const eventDelay = time.Second

// settled is the age from which an event is over: containerd tells CRI and the agent of an end at the same time, and
// CRI lists the container as running until it has cleaned up. An event that is younger when the node is observed causes
// another observation.
const settled = eventDelay / 2

// Watched holds the followed containers that run, and those that should.
type Watched struct {
	mu       sync.Mutex
	busy     bool            // a cycle is running
	acting   bool            // the agent is restarting a pod
	ids      map[string]bool // CRI's, of followed containers
	down     bool            // a followed container does not run
	expected []follow.Expected
	names    []string
	node     string          // see Inventory.NodeName
	seen     map[string]seen // by file/container, observed during a cycle
	due      time.Time       // of the last event about a followed container; zero: none, or it has been observed
	started  map[string]bool // other started containers, which may belong to a new pod
}

// seen is a container observed during a cycle.
type seen struct {
	down *status.Down
	runs *node.Container // nil if it does not run
}

// maxStarted limits the containers kept until the next list of containers.
const maxStarted = 1024

// WatchEvents calls observe after a followed container or one of a new static pod has started, or a followed one has
// ended, until stop is called. events may be nil. pods lists the containers of static pods.
func (w *Watched) WatchEvents(
	ctx context.Context, events RuntimeEvents, pods node.ContainerLister, observe func(context.Context),
) (stop func()) {
	if events == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	due := make(chan struct{}, 1)
	var group sync.WaitGroup
	group.Go(func() {
		events.Watch(ctx, func(e RuntimeEvent) {
			if w.note(e) {
				ring(due)
			}
		})
	})
	group.Go(func() {
		for nextEvents(ctx, due) {
			isDue, isOver := w.isDue(ctx, pods)
			if isDue {
				observe(ctx)
			}
			if !isOver {
				ring(due)
			}
		}
	})
	return func() { cancel(); group.Wait() }
}

func ring(due chan<- struct{}) {
	select {
	case due <- struct{}{}:
	default:
	}
}

// nextEvents waits for an event, and for those that follow within eventDelay; false when ctx ends.
func nextEvents(ctx context.Context, due <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-due:
	}
	_ = wait.For(ctx, eventDelay)
	select {
	case <-due: // one observation covers the events since
	default:
	}
	return true
}

// note records an event. It reports whether the event may be about a followed container, or a new pod.
func (w *Watched) note(e RuntimeEvent) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case e.ContainerID == "", w.ids[e.ContainerID], e.Ended && w.busy, !e.Ended && w.down, len(w.started) >= maxStarted:
		w.due = time.Now()
		return true
	case e.Ended:
		return false
	}
	if w.started == nil {
		w.started = map[string]bool{}
	}
	w.started[e.ContainerID] = true
	return true
}

// isDue reports whether an event was about a followed container, or a static pod that the last cycle did not see. If
// one about a followed container is not over, the next call reports it again.
func (w *Watched) isDue(ctx context.Context, pods node.ContainerLister) (isDue, isOver bool) {
	w.mu.Lock()
	due, started := w.due, w.started
	w.started = nil
	if isOver = time.Since(due) >= settled; isOver {
		w.due = time.Time{}
	}
	w.mu.Unlock()
	if !due.IsZero() {
		return true, isOver
	}
	containers, _, err := pods.Containers(ctx)
	return err != nil || // the observation reports it
		slices.ContainsFunc(containers, func(c node.Container) bool { return started[c.ID] }), isOver
}

// SetBusy sets whether a cycle is running.
func (w *Watched) SetBusy(busy bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = busy
}

// IsBusy reports whether a cycle is running.
func (w *Watched) IsBusy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.busy
}

// Forget drops the observations during a cycle, before the next one observes the node.
func (w *Watched) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = nil
}

// Restart begins a restart by the agent: containers may end until end is called.
func (w *Watched) Restart() (end func()) {
	set := func(acting bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.acting = acting
	}
	set(true)
	return func() { set(false) }
}

// Update sets the followed containers that a cycle found.
func (w *Watched) Update(p plan.Plan, inv node.Inventory) {
	ids := map[string]bool{}
	for _, c := range inv.Containers {
		ids[c.ID] = true
	}
	var all []follow.Expected
	for _, pod := range p.Pods {
		for _, i := range pod.Images {
			if i.Expected != nil {
				all = append(all, *i.Expected)
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids, w.down, w.expected, w.names, w.node = ids, p.IsDown(), all, p.Names, inv.NodeName
}

// Note records which of the expected containers do not run.
func (w *Watched) Note(containers []node.Container, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.acting {
		return
	}
	w.seen = map[string]seen{}
	pods := node.Inventory{Containers: containers, NodeName: w.node}.ByPod(w.names)
	for _, e := range w.expected {
		is := seen{down: e.Down(pods, now)}
		if c := e.Find(pods); c != nil && c.Running && len(c.Digests) > 0 {
			is.runs = c
		}
		w.seen[record.GoodKey(e.File, e.Container)] = is
		w.down = w.down || is.down != nil
	}
}

// Correct adds to a cycle's status the containers that have ended or started since. An ended container is a failure;
// otherwise state and reasons stay.
func (w *Watched) Correct(s status.Status) status.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seen) == 0 {
		return s
	}
	s.Images = slices.Clone(s.Images) // the callers share s.Images
	for n := range s.Images {
		i := &s.Images[n]
		is := w.seen[record.GoodKey(i.PodManifest, i.Container)]
		d := is.down
		if is.runs != nil {
			i.Running, i.Down = running(*i, *is.runs), nil
		}
		if d == nil || d.Starting || i.Down != nil || s.State == status.StateApplying {
			continue
		}
		i.Down, i.Running = d, nil
		if s.State != status.StateFailed {
			s.State, s.Since, s.Reasons = status.StateFailed, d.Since.UTC(), status.OfAnyState(s.Reasons)
		}
		why := d.AsReason(i.PodManifest, i.Container, i.Image)
		s.Reasons = withFailure(s.Reasons, why)
		s.Failures = append(slices.Clone(s.Failures), why.AsFailure())
		s.Reason = status.SentenceOf(s.Reasons)
	}
	return s
}

// withFailure inserts a failure before the offers that wait for approval.
func withFailure(reasons []status.Reason, why status.Reason) []status.Reason {
	at := slices.IndexFunc(reasons, func(r status.Reason) bool { return r.Kind == status.KindApproval })
	if at < 0 {
		at = len(reasons)
	}
	return slices.Insert(slices.Clone(reasons), at, why)
}

// running returns a container's running release.
func running(i status.ImageStatus, c node.Container) *status.Named {
	for _, known := range []*status.Named{i.Running, i.Offered, i.LastKnownGood, i.Previous} {
		if known != nil && slices.Contains(c.Digests, known.Digest) {
			return known
		}
	}
	return &status.Named{Digest: c.Digests[0]}
}
