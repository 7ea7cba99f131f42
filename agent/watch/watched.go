// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// eventDelay is from an event until the node is observed: kubelet starts within a
// second what it starts anew at once, and events come in bursts. So the node is
// observed at most once a second for events, however many there are.
const eventDelay = time.Second

// Watched is what the loop knows of the followed containers that run, and of those
// that should. The nil one is of an agent without a loop: it knows nothing.
type Watched struct {
	mu       sync.Mutex
	busy     bool            // a cycle runs: what it has seen may be old by its end
	acting   bool            // the agent restarts a pod: its containers come and go
	ids      map[string]bool // CRI's, of followed containers
	down     bool            // some do not run
	expected []plan.Expected
	names    []string
	node     string                  // see Inventory.NodeName
	seen     map[string]*status.Down // by file/container, seen while a cycle ran
}

// WatchEvents calls observe soon after a followed container has started or ended, until
// stop is called. nil events: there are none.
func (w *Watched) WatchEvents(ctx context.Context, events RuntimeEvents, observe func(context.Context)) (stop func()) {
	if events == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	due := make(chan struct{}, 1)
	var group sync.WaitGroup
	group.Go(func() {
		events.Watch(ctx, func(e RuntimeEvent) {
			if w.concerns(e) {
				select {
				case due <- struct{}{}:
				default: // it is due already
				}
			}
		})
	})
	group.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-due:
			}
			timer := time.NewTimer(eventDelay)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
			select {
			case <-due: // seen by this observation as well
			default:
			}
			observe(ctx)
		}
	})
	return func() { cancel(); group.Wait() }
}

// concerns reports whether an event may be of a followed container.
func (w *Watched) concerns(e RuntimeEvent) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case e.ContainerID == "":
		return true
	case e.Ended:
		return w.busy || w.ids[e.ContainerID]
	default:
		return w.down // else nothing of ours is missed
	}
}

func (w *Watched) SetBusy(busy bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = busy
}

func (w *Watched) IsBusy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.busy
}

// Forget drops what was seen beside a cycle: who looks next sees it itself.
func (w *Watched) Forget() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = nil
}

// Restart begins the time in which the agent restarts a pod: what goes down then is
// its own doing.
func (w *Watched) Restart() (end func()) {
	if w == nil {
		return func() {}
	}
	w.setActing(true)
	return func() { w.setActing(false) }
}

func (w *Watched) setActing(acting bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acting = acting
}

// Update takes over what a cycle has found.
func (w *Watched) Update(p plan.Plan, inv node.Inventory) {
	if w == nil {
		return
	}
	ids := map[string]bool{}
	for _, c := range inv.Containers {
		ids[c.ID] = true
	}
	var all []plan.Expected
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

// Note keeps which containers do not run.
func (w *Watched) Note(containers []node.Container, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.acting {
		return
	}
	w.seen = map[string]*status.Down{}
	inv := node.Inventory{Containers: containers, NodeName: w.node}
	for _, e := range w.expected {
		d := e.Down(inv, w.names, now)
		w.seen[record.GoodKey(e.File, e.Container)] = d
		w.down = w.down || d != nil // its start is to be heard
	}
}

// Correct is the status of a cycle with what was seen beside one. While a pod is applied
// its containers come and go.
func (w *Watched) Correct(s status.Status) status.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seen) == 0 || s.State == status.StateApplying {
		return s
	}
	s.Images = slices.Clone(s.Images) // readers have the old ones
	for n := range s.Images {
		i := &s.Images[n]
		d, known := w.seen[record.GoodKey(i.PodManifest, i.Container)]
		if !known || d == nil || d.Starting || i.Down != nil {
			continue
		}
		i.Down, i.Running = d, nil
		if s.State != status.StateFailed {
			s.State, s.Since, s.Reasons = status.StateFailed, d.Since.UTC(), nil
		}
		s.Reasons = append(slices.Clone(s.Reasons), d.AsReason(i.PodManifest, i.Container, i.Image))
		s.Reason = status.SentenceOf(s.Reasons)
	}
	return s
}
