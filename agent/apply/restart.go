// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
)

// KubeletForgets is how long kubelet takes to forget a pod whose sandbox is down: 0.9 s at
// most were measured. If the pod manifest returns earlier, the start takes 10 to 15 s longer
// (pod_workers.go, allowPodStart).
const KubeletForgets = 1500 * time.Millisecond

// shutdownSlack is how long a pod may take to end beyond its grace. After that its pod
// manifest is written anyway, and kubelet starts it later.
const shutdownSlack = 10 * time.Second

// act restarts what a step names: the whole pod through its pod manifest, or containers one
// by one.
func (r *restart) act(ctx context.Context, s plan.Step) error {
	r.shutdownTimedOut, r.acted = false, time.Now()
	defer r.inhibit(ctx, s)()
	switch {
	case s.Apply.Aside:
		return r.swap(ctx, s)
	case s.Data != nil:
		return r.Write(ctx, s)
	}
	for _, id := range s.Apply.Stop {
		stop := func() error { return r.Pods.Stop(ctx, id, s.Apply.Grace) }
		if err := r.Progress.WhileWaiting(s.File, s.Apply.Pod, stop); err != nil {
			return fmt.Errorf("stop container of pod %s: %w", s.Apply.Pod, err)
		}
	}
	return nil
}

// inhibit delays a shutdown of the node until allow is called. Without an inhibitor's answer
// the restart continues: a shutdown may interrupt it anywhere.
func (r *Restarter) inhibit(ctx context.Context, s plan.Step) (allow func()) {
	if r.Inhibitor == nil {
		return func() {}
	}
	allow, err := r.Inhibitor.Inhibit(ctx, fmt.Sprintf("%s %s", s.Do, s.Apply.Pod))
	if err != nil {
		r.Log.Warn("shutdown is not delayed", "err", err)
		return func() {}
	}
	return allow
}

// swap sets a pod manifest aside, waits until the pod is down, and writes it: kubelet then
// creates the pod at once, init containers included. Replacing the file takes 10 to 15 s
// longer, because kubelet still knows the old pod. The pod manifest is restored on each error.
func (r *restart) swap(ctx context.Context, s plan.Step) (err error) {
	data := s.Data
	if data == nil {
		data = s.Was.Data
	}
	defer func() {
		_, putBack := r.Files.PutBack(context.WithoutCancel(ctx))
		if err != nil {
			err = errors.Join(err, putBack)
		} else if putBack != nil { // the next cycle removes the copy
			r.Log.Warn("copy of the pod manifest stays", "file", s.File, "err", putBack)
		}
	}()
	if err := r.Files.SetAside(ctx, s.Was); err != nil {
		return err
	}
	if err := r.Progress.WhileWaiting(s.File, s.Apply.Pod, func() error { return r.awaitDown(ctx, s.Apply) }); err != nil {
		return err
	}
	for _, id := range s.Apply.Sandboxes {
		if err := r.Pods.Clear(ctx, id); err != nil {
			r.Log.Warn("ended containers stay", "pod", s.Apply.Pod, "err", err)
		}
	}
	return r.Write(ctx, plan.Step{File: s.File, Was: node.PodFile{Name: s.File}, Data: data, Ours: s.Ours, Bound: s.Bound})
}

// awaitDown waits until kubelet has ended a pod and forgotten it.
func (r *restart) awaitDown(ctx context.Context, p plan.Apply) error {
	end := time.NewTimer(p.Grace + shutdownSlack)
	defer end.Stop()
	tick := time.NewTicker(proofInterval / 5)
	defer tick.Stop()
	for _, id := range p.Sandboxes {
		for {
			up, err := r.Pods.SandboxReady(ctx, id)
			if err != nil {
				r.Log.Warn("sandbox not observed", "pod", p.Pod, "err", err)
			} else if !up {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("pod %s goes down: %w", p.Pod, ctx.Err())
			case <-end.C:
				r.Log.Warn("pod does not go down", "pod", p.Pod)
				r.shutdownTimedOut = true
				return nil
			case <-tick.C:
			}
		}
	}
	pause := time.NewTimer(r.Policy.Forgets)
	defer pause.Stop()
	select {
	case <-ctx.Done():
	case <-pause.C:
	}
	if ctx.Err() != nil {
		return fmt.Errorf("pod %s goes down: %w", p.Pod, ctx.Err())
	}
	return nil
}
