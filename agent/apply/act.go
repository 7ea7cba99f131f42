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

// KubeletForgets is how long kubelet needs after a pod's sandbox is down until it
// has forgotten the pod: measured 0.9 s at most. A pod manifest that comes back
// earlier costs 10 to 15 s (pod_workers.go, allowPodStart), and nothing else.
const KubeletForgets = 1500 * time.Millisecond

// goesDown is how long a pod may take to end beyond its own grace. Later its pod
// manifest is written all the same, and kubelet takes it in its own time.
const goesDown = 10 * time.Second

// act restarts what a step names: containers one by one, or the whole pod by its
// pod manifest.
func (r *restart) act(ctx context.Context, s plan.Step) error {
	r.shutdownTimedOut, r.acted = false, time.Now()
	release := r.inhibit(ctx, s)
	defer release()
	switch {
	case s.Apply.Aside:
		return r.swap(ctx, s)
	case s.Data != nil:
		return r.Write(ctx, s)
	}
	for _, id := range s.Apply.Stop {
		stop := func() error { return r.Pods.Stop(ctx, id, s.Apply.Grace) }
		if err := r.Progress.WhileWaiting(s.Apply.Pod, stop); err != nil {
			return fmt.Errorf("stop container of pod %s: %w", s.Apply.Pod, err)
		}
	}
	return nil
}

// inhibit asks the node not to go down while a pod is between two states. Without
// an answer the work goes on: it can be cut short anywhere.
func (r *restart) inhibit(ctx context.Context, s plan.Step) (release func()) {
	if r.Inhibitor == nil {
		return func() {}
	}
	release, err := r.Inhibitor.Inhibit(ctx, fmt.Sprintf("%s %s", s.Do, s.Apply.Pod))
	if err != nil {
		r.Log.Warn("shutdown is not delayed", "err", err)
		return func() {}
	}
	return release
}

// swap takes a pod manifest out of kubelet's sight, waits until the pod is down,
// and writes it anew: kubelet makes the pod anew, init containers included, and at
// once. Replacing the file costs 10 to 15 s, as kubelet meets the old pod. Whatever
// happens the pod manifest is there in the end.
func (r *restart) swap(ctx context.Context, s plan.Step) (err error) {
	data := s.Data
	if data == nil {
		data = s.Was.Data
	}
	defer func() {
		_, back := r.Files.PutBack(context.WithoutCancel(ctx))
		if err != nil {
			err = errors.Join(err, back)
		} else if back != nil { // it is written, and the copy goes in the next cycle
			r.Log.Warn("copy of the pod manifest stays", "file", s.File, "err", back)
		}
	}()
	if err := r.Files.SetAside(ctx, s.Was); err != nil {
		return err
	}
	if err := r.Progress.WhileWaiting(s.Apply.Pod, func() error { return r.awaitDown(ctx, s.Apply) }); err != nil {
		return err
	}
	for _, id := range s.Apply.Sandboxes {
		if err := r.Pods.Clear(ctx, id); err != nil {
			r.Log.Warn("ended containers stay", "pod", s.Apply.Pod, "err", err)
		}
	}
	return r.Write(ctx, plan.Step{File: s.File, Was: node.PodFile{Name: s.File}, Data: data, Ours: s.Ours})
}

// awaitDown waits until kubelet has ended a pod and forgotten it.
func (r *restart) awaitDown(ctx context.Context, p plan.Apply) error {
	end := time.NewTimer(p.Grace + goesDown)
	defer end.Stop()
	tick := time.NewTicker(proofInterval / 5)
	defer tick.Stop()
	for _, id := range p.Sandboxes {
		for up := true; up; {
			var err error
			if up, err = r.Pods.SandboxReady(ctx, id); err != nil {
				r.Log.Warn("sandbox not seen", "pod", p.Pod, "err", err)
				up = true
			}
			if !up {
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
