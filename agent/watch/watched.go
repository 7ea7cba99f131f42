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

// longestPause limits the time between two looks at an event that CRI does not show.
const longestPause = time.Minute

// maxEvents limits the events that are kept.
const maxEvents = 1024

// Watched holds the containers that should run, and the events of the runtime.
type Watched struct {
	mu       sync.Mutex
	busy     bool // a cycle is running
	acting   bool // the agent is restarting a pod
	expected []follow.Expected
	names    []string
	node     string          // see Inventory.NodeName
	seen     map[string]seen // by file/container, observed during a cycle
	cycles   int             // observations of cycles
	listed   map[string]bool // the containers of static pods in the last list, and whether they run
	events   map[string]bool // by container, whether it has ended; no list has shown them yet. "": events may be missed
	last     time.Time       // of the last event
	looked   time.Time       // the end of the last look that got a list
	away     bool            // the last look got no list
}

// seen is a container observed during a cycle.
type seen struct {
	down *status.Down
	runs *node.Container // nil if it does not run
}

// WatchEvents calls observe after a container of a static pod has started or ended, until stop is called. events may be
// nil. pods lists the containers of static pods.
func (w *Watched) WatchEvents(
	ctx context.Context, events RuntimeEvents, pods node.ContainerLister, observe func(),
) (stop func()) {
	if events == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	added := make(chan struct{}, 1)
	var group sync.WaitGroup
	group.Go(func() {
		events.Watch(ctx, func(e RuntimeEvent) {
			w.add(e)
			select {
			case added <- struct{}{}:
			default:
			}
		})
	})
	group.Go(func() {
		for w.next(ctx, added) {
			if w.look(ctx, pods) {
				observe()
			}
		}
	})
	return func() { cancel(); group.Wait() }
}

func (w *Watched) add(e RuntimeEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = time.Now()
	delete(w.events, e.ContainerID)
	w.keep(e.ContainerID, e.Ended)
}

// keep keeps an event for the next look, unless there is a newer one of the container. The caller holds the lock.
func (w *Watched) keep(id string, ended bool) {
	if w.events == nil {
		w.events = map[string]bool{}
	}
	if len(w.events) >= maxEvents {
		id = ""
	}
	if _, isNewer := w.events[id]; !isNewer {
		w.events[id] = ended
	}
}

// next waits for an event, and for those that follow within eventDelay; false when ctx ends. If events are left, it
// waits until the last one is twice as old, but no longer than longestPause.
func (w *Watched) next(ctx context.Context, added <-chan struct{}) bool {
	var again <-chan time.Time
	w.mu.Lock()
	if len(w.events) > 0 {
		again = time.After(min(max(time.Since(w.last), eventDelay), longestPause))
	}
	w.mu.Unlock()
	select {
	case <-ctx.Done():
		return false
	case <-again:
	case <-added:
		_ = wait.For(ctx, eventDelay)
	}
	select {
	case <-added: // one look covers the events since
	default:
	}
	return true
}

// look lists the containers, and reports whether the list shows an event of a static pod. CRI shows an event later than
// containerd reports it: an ended container runs, in CRI's list, until its task is deleted. containerd 1.6 to 2.4 try
// that for 10 seconds, and again with pauses of up to 5 minutes (handleContainerExit). So an event is over when a list
// taken after it shows it, or does not have the container.
func (w *Watched) look(ctx context.Context, pods node.ContainerLister) (isDue bool) {
	w.mu.Lock()
	events, cycles := w.events, w.cycles
	w.events = nil
	w.mu.Unlock()
	if len(events) == 0 {
		return false
	}
	containers, _, err := pods.Containers(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	isNewlyAway := err != nil && !w.away && ctx.Err() == nil
	w.away = err != nil && (w.away || isNewlyAway)
	isUnknown := err != nil || w.cycles != cycles // the list is older than that of a cycle
	listed := states(containers)
	for id, ended := range events {
		runs, is := listed[id]
		_, was := w.listed[id]
		if isUnknown || is && runs == ended {
			w.keep(id, ended)
		} else if is || was || id == "" {
			isDue = true
		}
	}
	if isUnknown {
		return isNewlyAway // the observation reports it
	}
	for id := range w.events { // came during the list; the next one does not tell a container of a static pod from others
		_, is := listed[id]
		if _, was := w.listed[id]; was && !is {
			delete(w.events, id)
			isDue = true
		}
	}
	w.listed, w.looked = listed, time.Now()
	if isDue && w.busy {
		w.note(containers, w.looked.Round(0))
	}
	return isDue
}

// states returns whether each container runs, by id.
func states(containers []node.Container) map[string]bool {
	out := make(map[string]bool, len(containers))
	for _, c := range containers {
		out[c.ID] = c.Running
	}
	return out
}

// SetBusy sets whether a cycle is running.
func (w *Watched) SetBusy(busy bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = busy
}

// Observed takes the containers that a cycle has listed since begun. They replace those of events, unless an event's
// list ended since.
func (w *Watched) Observed(containers []node.Container, begun time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cycles++
	if !w.looked.After(begun) {
		w.seen, w.listed = nil, states(containers)
	}
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

// Update sets the containers that must run, as a cycle found.
func (w *Watched) Update(p plan.Plan, inv node.Inventory) {
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
	w.expected, w.names, w.node = all, p.Names, inv.NodeName
}

// note records which of the expected containers do not run. The caller holds the lock.
func (w *Watched) note(containers []node.Container, now time.Time) {
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
