// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/internal/wait"
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
func (a *attempt) act(ctx context.Context, s plan.Step) error {
	a.shutdownTimedOut, a.acted = false, time.Now()
	if err := a.checkAlone(ctx, s.File, s.Data, s.Was.Data); err != nil {
		return err
	}
	defer a.inhibit(ctx, s)()
	switch {
	case s.Apply.Aside:
		return a.swap(ctx, s)
	case s.Data != nil:
		return a.Write(ctx, s)
	}
	for _, id := range s.Apply.Stop {
		stop := func() error { return a.Pods.Stop(ctx, id, s.Apply.Grace) }
		if err := a.Progress.WhileWaiting(s.File, s.Apply.Pod, stop); err != nil {
			return fmt.Errorf("stop container of pod %s: %w", s.Apply.Pod, err)
		}
	}
	return nil
}

// inhibit delays a shutdown of the node until allow is called. Without an inhibitor's answer
// the restart continues: a shutdown may interrupt it anywhere.
func (x *Executor) inhibit(ctx context.Context, s plan.Step) (allow func()) {
	if x.Inhibitor == nil {
		return func() {}
	}
	allow, err := x.Inhibitor.Inhibit(ctx, fmt.Sprintf("%s %s", s.Do, s.Apply.Pod))
	if err != nil {
		x.Log.Warn("shutdown is not delayed", "err", err)
		return func() {}
	}
	return allow
}

// swap sets a pod manifest aside, waits until the pod is down, and writes it: kubelet then
// creates the pod at once, init containers included. Replacing the file takes 10 to 15 s
// longer, because kubelet still knows the old pod. The pod manifest is restored on each error.
func (a *attempt) swap(ctx context.Context, s plan.Step) (err error) {
	data := s.Data
	if data == nil {
		data = s.Was.Data
	}
	defer func() {
		_, putBack := a.Files.PutBack(context.WithoutCancel(ctx))
		if err != nil {
			err = errors.Join(err, putBack)
		} else if putBack != nil { // the next cycle removes the copy
			a.Log.Warn("copy of the pod manifest stays", "file", s.File, "err", putBack)
		}
	}()
	if err := a.Files.SetAside(ctx, s.Was); err != nil {
		return err
	}
	var down []string
	await := func() (err error) { down, err = a.awaitDown(ctx, s.Apply); return err }
	if err := a.Progress.WhileWaiting(s.File, s.Apply.Pod, await); err != nil {
		return err
	}
	for _, id := range down {
		if err := a.Pods.Clear(ctx, id); err != nil {
			a.Log.Warn("ended containers stay", "pod", s.Apply.Pod, "err", err)
		}
	}
	return a.Write(ctx, plan.Step{File: s.File, Was: node.PodFile{Name: s.File}, Data: data, Ours: s.Ours, Bound: s.Bound})
}

// awaitDown waits until kubelet has ended a pod and forgotten it, and returns the sandboxes that it had. kubelet may
// have begun to start the pod anew before its pod manifest was set aside: what it starts meanwhile is about to end,
// too, and would be taken for the pod of the next pod manifest. A pod counts as up as long as CRI does not answer.
func (a *attempt) awaitDown(ctx context.Context, p plan.Apply) (sandboxes []string, err error) {
	until, cancel := context.WithTimeout(ctx, p.Grace+shutdownSlack)
	defer cancel()
	for up := p.Sandboxes; err == nil; {
		sandboxes = append(sandboxes, up...)
		for n := 0; n < len(up) && err == nil; n++ {
			err = askUntil(until, func() (down bool, err error) {
				isUp, err := a.Pods.SandboxReady(ctx, up[n])
				return !isUp, err
			})
		}
		if err == nil {
			err = wait.For(ctx, a.Policy.Forgets)
		}
		if err == nil {
			err = askUntil(until, func() (answered bool, err error) {
				up, err = a.runsIn(ctx, p, sandboxes)
				return true, err
			})
		}
		if err == nil && len(up) == 0 {
			return sandboxes, nil
		}
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("pod %s goes down: %w", p.Pod, ctx.Err())
	}
	a.Log.Warn("pod does not go down", "pod", p.Pod, "err", err)
	a.shutdownTimedOut = true
	return sandboxes, nil
}

// askUntil repeats a question until its answer is yes. Its error is the last one if ctx ends before.
func askUntil(ctx context.Context, ask func() (yes bool, err error)) error {
	for {
		yes, err := ask()
		if err == nil && yes {
			return nil
		}
		if ended := wait.For(ctx, proofInterval/5); ended != nil {
			return errors.Join(ended, err)
		}
	}
}

// runsIn are the sandboxes in which containers of a pod run, without those that are known.
func (a *attempt) runsIn(ctx context.Context, p plan.Apply, known []string) (out []string, err error) {
	containers, err := a.containers(ctx, p)
	for _, c := range containers {
		if c.Running && !slices.Contains(slices.Concat(known, out), c.Sandbox) {
			out = append(out, c.Sandbox)
		}
	}
	return out, err
}
