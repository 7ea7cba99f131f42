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

// caller is who waits for an apply or a rollback. A caller that leaves takes back what it has approved and what has not
// begun; what has begun goes on. A nil caller never leaves. It is safe for concurrent use.
type caller struct {
	gone chan struct{} // closed when the caller leaves

	mu   sync.Mutex
	left bool
	pods []*callerPod
}

// callerPod is a pod that the caller has approved.
type callerPod struct {
	outcome status.Outcome // with a result once it has ended
	begun   bool
	undo    func() // takes the approval back
}

func newCaller() *caller { return &caller{gone: make(chan struct{})} }

// approves adds a pod. undo restores what was recorded before. A request that is resumed adds it again, and keeps the
// first undo.
func (c *caller) approves(o status.Outcome, undo func()) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.find(o.PodManifest); p != nil {
		p.outcome = o
		return
	}
	c.pods = append(c.pods, &callerPod{outcome: o, undo: undo})
}

// find returns nil for a pod that another caller has approved. The caller holds the lock.
func (c *caller) find(file string) *callerPod {
	n := slices.IndexFunc(c.pods, func(p *callerPod) bool { return p.outcome.PodManifest == file })
	if n < 0 {
		return nil
	}
	return c.pods[n]
}

// Begin reports whether the restart of a pod may begin: its caller is still there, or another has approved it. What has
// begun once goes on.
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
	p.begun = p.begun || !c.left
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

// until returns a context that also ends when the caller leaves, for what restarts nothing.
func (c *caller) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if c == nil {
		return ctx, cancel
	}
	return ctx, sync.OnceFunc(c.onLeave(cancel))
}

// end notes the result of a pod.
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

// leave ends the wait. It reports whether something has begun.
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

// takeBack returns how to take back the approvals of a caller that has left, once.
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

// The reasons of outcomes for a caller that has left.
const (
	reasonCanceled  = "its approval was taken back before anything began"
	reasonContinues = "it had begun, and goes on"
)

// ErrCanceled is returned to a caller that left before anything was approved.
var ErrCanceled = errors.New("canceled before it began")

// outcomes are those for a caller that has left.
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
