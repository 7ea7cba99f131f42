// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Request is a piece of work for the Loop: a poll by the clock, an observation after an event, or what a person asks
// for. The Loop queues it, runs it, and repeats it if another request interrupts it. Each cycle that runs for it gets
// it.
//
// A poll is a Request without a caller. The caller of an apply or a rollback may leave: it then takes back its
// approvals of pods whose restart has not begun, and a restart that has begun continues.
type Request struct {
	verb     string                // what a person asks for; "" for a poll
	by       status.Actor          // who asks
	urgent   bool                  // a person waits: interrupts polls and stagings, and stages only what it needs
	poll     source.Poll           // what its cycle asks the source
	progress func(status.Progress) // called with the loop's progress while it waits and runs; may be nil
	doing    string                // the reason in the status while it runs; "" keeps the state
	which    plan.Which            // the pods that it restarts

	do          func(context.Context) (cycleResult, error) // repeated after an interruptedError
	interrupted bool                                       // waits to be repeated; the queue's
	done        chan struct{}                              // closed when it has ended
	status      status.Status                              // afterwards
	err         error
	ended       []status.Outcome // of the last run of an apply or a rollback

	gone chan struct{} // closed when the caller leaves
	mu   sync.Mutex    // guards the fields below
	left bool
	pods []*approvedPod
}

// approvedPod is a pod whose restart the caller has approved.
type approvedPod struct {
	outcome  status.Outcome // with a result once it has ended
	together []string       // the pods whose restarts begin with this one
	begun    bool
	undo     func() // takes the approval back
}

// errLeft is returned for a request whose caller left after something had begun.
var errLeft = errors.New("the caller left")

// newRequest returns a request of the person in ctx. It precedes polls and stagings.
func newRequest(ctx context.Context, verb string, onProgress func(status.Progress)) *Request {
	return &Request{
		verb: verb, by: status.ActorOf(ctx), urgent: true, progress: onProgress,
		done: make(chan struct{}), gone: make(chan struct{}),
	}
}

func (r *Request) isPoll() bool { return r.verb == "" }

func (r *Request) hasCaller() bool { return !r.isPoll() }

func (r *Request) isUrgent() bool { return r.urgent && !r.interrupted }

func (r *Request) isInterrupted() bool { return r.interrupted }

// approves adds a pod. undo restores the earlier record. together are the pods whose restarts begin with its own. A
// resumed request adds the pod again and keeps the first undo.
func (r *Request) approves(o status.Outcome, undo func(), together ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.find(o.PodManifest); p != nil {
		p.outcome = o
		return
	}
	r.pods = append(r.pods, &approvedPod{outcome: o, undo: undo, together: together})
}

// find returns nil for a pod that another caller has approved. The caller holds the lock.
func (r *Request) find(file string) *approvedPod {
	n := slices.IndexFunc(r.pods, func(p *approvedPod) bool { return p.outcome.PodManifest == file })
	if n < 0 {
		return nil
	}
	return r.pods[n]
}

// Begin reports whether the restart of a pod may begin: its caller is still there, or another caller has approved it.
// It stays true once the restart has begun.
func (r *Request) Begin(file string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.find(file)
	if p == nil {
		return true
	}
	if !p.begun && !r.left {
		p.begun = true
		for _, file := range p.together {
			if other := r.find(file); other != nil {
				other.begun = true
			}
		}
	}
	return p.begun
}

// Until returns a context that also ends when the caller of a pod leaves before its restart has begun.
func (r *Request) Until(ctx context.Context, file string) (context.Context, context.CancelFunc) {
	r.mu.Lock()
	p := r.find(file)
	isBound := p != nil && !p.begun
	r.mu.Unlock()
	if !isBound {
		return context.WithCancel(ctx)
	}
	return r.until(ctx)
}

// until returns a context that also ends when the caller leaves, for work that restarts nothing.
func (r *Request) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-r.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// end records the result of a pod.
func (r *Request) end(file string, err error, done status.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.find(file); p != nil && p.begun {
		if p.outcome.Result = done; err != nil {
			p.outcome.SetError(err)
		}
	}
}

// leave marks the caller as gone. It reports whether a restart has begun.
func (r *Request) leave() (begun bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.left {
		r.left = true
		close(r.gone)
	}
	return slices.ContainsFunc(r.pods, func(p *approvedPod) bool { return p.begun })
}

func (r *Request) hasLeft() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left
}

// isCanceled reports whether the caller has left before the restart of a pod began.
func (r *Request) isCanceled(file string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.find(file)
	return p != nil && r.left && !p.begun
}

// takeBack returns the functions that undo the approvals of a caller that has left. A second call returns none.
func (r *Request) takeBack() (undo []func(), files []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pods {
		if r.left && !p.begun && p.undo != nil {
			undo, files = append(undo, p.undo), append(files, p.outcome.PodManifest)
			p.undo = nil
		}
	}
	return undo, files
}

// The reasons in outcomes for a caller that has left.
const (
	reasonCanceled  = "approval removed before the pod was restarted"
	reasonContinues = "already restarting; continues without the caller"
)

// reasonInterrupted is the reason in an outcome whose cycle ended too early: the daemon ends, or could not observe the
// node.
func reasonInterrupted(ctx context.Context) string {
	if ctx.Err() != nil {
		return "interrupted: continues at the next start of the daemon"
	}
	return "interrupted: continues at the next observation of the node"
}

// ErrCanceled is returned to a caller that left before anything was approved.
var ErrCanceled = errors.New("canceled before anything was approved")

// outcomes returns the outcomes of a request that ended with err: those of its last run, or those so far if its caller
// has left.
func (r *Request) outcomes(err error) ([]status.Outcome, error) {
	if !errors.Is(err, errLeft) {
		return r.ended, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]status.Outcome, 0, len(r.pods))
	for _, p := range r.pods {
		o := p.outcome
		switch {
		case o.Result != "":
		case p.begun:
			o.Result, o.Reason = status.ResultContinues, reasonContinues
		default:
			o.Result, o.Reason = status.ResultCanceled, reasonCanceled
		}
		out = append(out, o)
	}
	if len(out) == 0 {
		return nil, ErrCanceled
	}
	return out, nil
}
