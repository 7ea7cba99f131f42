// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// errLeft is returned for a request whose caller left after something had begun.
var errLeft = errors.New("the caller left")

// caller is the client that waits for an apply or a rollback. A caller that leaves takes back its approvals of pods
// whose restart has not begun; a restart that has begun continues. A nil caller never leaves. It is safe for concurrent
// use.
type caller struct {
	gone chan struct{} // closed when the caller leaves

	mu   sync.Mutex
	left bool
	pods []*callerPod
}

// callerPod is a pod that the caller has approved.
type callerPod struct {
	outcome  status.Outcome // with a result once it has ended
	together []string       // the pods whose restarts begin with this one
	begun    bool
	undo     func() // takes the approval back
}

func newCaller() *caller { return &caller{gone: make(chan struct{})} }

// approves adds a pod. undo restores the earlier record. together are the pods whose restarts begin with its own. A
// resumed request adds the pod again and keeps the first undo.
func (c *caller) approves(o status.Outcome, undo func(), together ...string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.find(o.PodManifest); p != nil {
		p.outcome = o
		return
	}
	c.pods = append(c.pods, &callerPod{outcome: o, undo: undo, together: together})
}

// find returns nil for a pod that another caller has approved. The caller holds the lock.
func (c *caller) find(file string) *callerPod {
	n := slices.IndexFunc(c.pods, func(p *callerPod) bool { return p.outcome.PodManifest == file })
	if n < 0 {
		return nil
	}
	return c.pods[n]
}

// Begin reports whether the restart of a pod may begin: its caller is still there, or another caller has approved it.
// It stays true once the restart has begun.
func (c *caller) Begin(file string) bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.find(file)
	if p == nil {
		return true
	}
	if !p.begun && !c.left {
		p.begun = true
		for _, file := range p.together {
			if other := c.find(file); other != nil {
				other.begun = true
			}
		}
	}
	return p.begun
}

// Until returns a context that also ends when the caller of a pod leaves before its restart has begun.
func (c *caller) Until(ctx context.Context, file string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if c == nil {
		return ctx, cancel
	}
	c.mu.Lock()
	p := c.find(file)
	isBound := p != nil && !p.begun
	c.mu.Unlock()
	if !isBound {
		return ctx, cancel
	}
	return ctx, sync.OnceFunc(c.onLeave(cancel))
}

// onLeave calls cancel when the caller leaves, or when the function that it returns is called.
func (c *caller) onLeave(cancel context.CancelFunc) (stop func()) {
	stopped := make(chan struct{})
	go func() {
		select {
		case <-c.gone:
			cancel()
		case <-stopped:
		}
	}()
	return func() { close(stopped); cancel() }
}

// until returns a context that also ends when the caller leaves, for work that restarts nothing.
func (c *caller) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if c == nil {
		return ctx, cancel
	}
	return ctx, sync.OnceFunc(c.onLeave(cancel))
}

// end records the result of a pod.
func (c *caller) end(file string, err error, done status.Result) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.find(file); p != nil && p.begun {
		if p.outcome.Result = done; err != nil {
			p.outcome.SetError(err)
		}
	}
}

// leave marks the caller as gone. It reports whether a restart has begun.
func (c *caller) leave() (begun bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.left {
		c.left = true
		close(c.gone)
	}
	return slices.ContainsFunc(c.pods, func(p *callerPod) bool { return p.begun })
}

func (c *caller) hasLeft() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
}

// isCanceled reports whether the caller has left before the restart of a pod began.
func (c *caller) isCanceled(file string) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.find(file)
	return p != nil && c.left && !p.begun
}

// takeBack returns the functions that undo the approvals of a caller that has left. A second call returns none.
func (c *caller) takeBack() (undo []func(), files []string) {
	if c == nil {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pods {
		if c.left && !p.begun && p.undo != nil {
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
	// reasonInterrupted is for a daemon that ends.
	reasonInterrupted = "interrupted: continues at the next start of the daemon"
)

// ErrCanceled is returned to a caller that left before anything was approved.
var ErrCanceled = errors.New("canceled before anything was approved")

// outcomes returns the outcomes for a caller that has left.
func (c *caller) outcomes() ([]status.Outcome, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]status.Outcome, 0, len(c.pods))
	for _, p := range c.pods {
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
