// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/wait"
	"github.com/kubic-project/image-update-agent/manifests"
)

// KubeletForgets is how long kubelet takes to forget a pod whose sandbox is down: 0.9 s at
// most were measured. If the pod manifest returns earlier, the start takes 10 to 15 s longer
// (pod_workers.go, allowPodStart).
const KubeletForgets = 1500 * time.Millisecond

// shutdownSlack is the time that a pod gets to end beyond its grace period. After that its pod manifest is written
// anyway, and kubelet starts it later.
const shutdownSlack = 10 * time.Second

// act does the restart of a step: of the whole pod through its pod manifest, or of single containers.
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
	stop := func() error { return a.stopContainers(ctx, s.Apply) }
	if err := a.Progress.WhileWaiting(s.File, s.Apply.Pod, stop); err != nil {
		return fmt.Errorf("stop container of pod %s: %w", s.Apply.Pod, err)
	}
	return nil
}

// stopContainers stops the containers that a step restarts, all at once as kubelet does: one after the other, their
// grace periods would add up. An error of one does not keep the others from being stopped.
func (a *attempt) stopContainers(ctx context.Context, p plan.Apply) error {
	var stops errgroup.Group
	for _, id := range p.Stop {
		stops.Go(func() error { return a.Pods.Stop(ctx, id, p.Grace) })
	}
	return stops.Wait()
}

// inhibit delays a shutdown of the node until allow is called. If the inhibitor fails, the restart continues, and a
// shutdown may interrupt it at any point.
func (x *Executor) inhibit(ctx context.Context, s plan.Step) (allow func()) {
	if x.Inhibitor == nil {
		return func() {}
	}
	allow, err := x.Inhibitor.Inhibit(ctx, fmt.Sprintf("%s %s", s.Do, s.Apply.Pod))
	if err != nil {
		x.Log.Warn("cannot delay a shutdown", "err", err)
		return func() {}
	}
	return allow
}

// swap sets a pod manifest aside, waits until the pod is down, and writes the new one: kubelet then creates the pod at
// once, init containers included. Replacing the file takes 10 to 15 s longer, because kubelet still knows the old pod.
// swap restores the old pod manifest on error.
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
			a.Log.Warn("cannot remove the copy of the pod manifest", "file", s.File, "err", putBack)
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
			a.Log.Warn("cannot remove the stopped containers", "pod", s.Apply.Pod, "err", err)
		}
	}
	return a.Write(ctx, plan.Step{File: s.File, Was: node.PodFile{Name: s.File}, Data: data, Ours: s.Ours, Bound: s.Bound})
}

// awaitDown waits until kubelet has ended a pod and forgotten it, and returns the sandboxes of the pod. kubelet may
// have started the pod again just before its pod manifest was set aside: that instance is about to end as well, and
// must not be mistaken for the pod of the next pod manifest. A pod counts as up as long as CRI does not answer.
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
		return nil, fmt.Errorf("pod %s: waiting for its end: %w", p.Pod, ctx.Err())
	}
	a.Log.Warn("pod does not stop", "pod", p.Pod, "err", err)
	a.shutdownTimedOut = true
	return sandboxes, nil
}

// askUntil repeats a query until it returns true. If ctx ends before, it returns the last error.
func askUntil(ctx context.Context, ask func() (yes bool, err error)) error {
	for {
		yes, err := ask()
		if err == nil && yes {
			return nil
		}
		if ended := wait.For(ctx, healthInterval/5); ended != nil {
			return errors.Join(ended, err)
		}
	}
}

// runsIn returns the sandboxes with running containers of a pod, except the known ones.
func (a *attempt) runsIn(ctx context.Context, p plan.Apply, known []string) (out []string, err error) {
	containers, err := a.containers(ctx, p)
	for _, c := range containers {
		if c.Running && !slices.Contains(slices.Concat(known, out), c.Sandbox) {
			out = append(out, c.Sandbox)
		}
	}
	return out, err
}

// checkAlone returns a hold if another file of kubelet's directory defines, or may define, a pod that contents define;
// contents are versions of file. It reads the directory, because the other file may be new.
func (x *Executor) checkAlone(ctx context.Context, file string, contents ...[]byte) error {
	files, err := x.Files.PodManifests(ctx)
	if err != nil {
		return fmt.Errorf("pod manifests: %w", err)
	}
	x.Observed.Parse(files)
	for _, text := range contents {
		pod := manifests.Defines(text)
		if twice := node.FindDuplicate(files, file, pod); pod != "" && twice.Is() {
			return &release.HoldError{Hold: status.HoldDuplicate, Err: errors.New(twice.String())}
		}
	}
	return nil
}

// RecordNew records the pod manifests that the steps create, before they are written. On the first start of a node, the
// record is then saved once, and not after each file. The cycle drops the entry of a file that was not created.
func (x *Executor) RecordNew(ctx context.Context, steps []plan.Step) {
	changed := false
	for _, s := range steps {
		if s.Do == plan.StepWrite && s.Was.Data == nil && len(s.Bound) == 0 {
			changed = x.record(s) || changed
		}
	}
	if changed {
		x.Records.TrySave(ctx, "")
	}
}

// record records that the agent writes a pod manifest. It reports whether the record has changed.
func (x *Executor) record(s plan.Step) (changed bool) {
	rec := &x.Records.Record
	if len(s.Bound) > 0 && !maps.Equal(rec.Bound[s.File], s.Bound) {
		rec.Bound.Set(s.File, s.Bound)
		changed = true
	}
	if d := digest.FromBytes(s.Data); s.Ours && rec.Wrote[s.File] != d {
		rec.Wrote.Set(s.File, d)
		changed = true
	}
	return changed
}

// Write writes a pod manifest and records that the agent wrote it. An error of saving the record does not fail the
// write: the cycle saves the record again at its end.
func (x *Executor) Write(ctx context.Context, s plan.Step) error {
	if err := x.checkAlone(ctx, s.File, s.Data, s.Was.Data); err != nil {
		return err
	}
	if err := x.Files.Write(ctx, s.Was, s.Data); err != nil {
		return err
	}
	if x.record(s) {
		x.Records.TrySave(ctx, s.File)
	}
	return nil
}

// Remove removes a pod manifest that the agent wrote.
func (x *Executor) Remove(ctx context.Context, s plan.Step) error {
	if err := x.checkAlone(ctx, s.File, s.Was.Data); err != nil {
		return err
	}
	if err := x.Files.Remove(ctx, s.Was); err != nil {
		return err
	}
	x.Records.Record.Wrote.Delete(s.File)
	return x.Records.Save(ctx)
}

// PutBack restores the pod manifests that a killed run of the agent had set aside.
func (x *Executor) PutBack(ctx context.Context) error {
	names, err := x.Files.PutBack(ctx)
	for _, name := range names {
		x.Log.Info("pod manifest restored", "file", name)
	}
	if err != nil {
		return fmt.Errorf("pod manifests: restore: %w", err)
	}
	return nil
}
