// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
)

// applyAndRecord applies and remembers how it ended. An approval is used up
// either way, but where nobody could look: what failed is not tried again by itself.
func (a *Agent) applyAndRecord(ctx context.Context, s Step) error {
	if s.Apply.Auto {
		if open, _ := a.Policy.open(a.Now()); !open {
			return nil // it has closed while other pods were applied
		}
	}
	a.startWatch()
	err := a.fresh(s.Apply)
	if err == nil {
		err = a.apply(ctx, s)
	}
	a.countRestart(ctx, Restart{}, err)
	if err != nil && ctx.Err() != nil || isUnseen(err) {
		return err // the approval stands: the next start, or the next cycle, goes on
	}
	delete(a.record.Approved, s.File)
	switch {
	case err == nil:
		delete(a.record.Failed, s.File)
		a.noteProof(s, false)
		a.record.moveOn(s)
		a.applied[s.File] = true
	case isDown(err):
		return a.failed(ctx, s, err)
	case !waits(err):
		a.record.fail(s.File, Failure{At: a.Now().UTC(), Offer: s.Apply.Offer, Reason: err.Error()})
	}
	return errors.Join(err, a.save(ctx))
}

// fresh refuses what has just not come up in another pod of the same plan, and a client
// of an API server that has stayed as it was.
func (a *Agent) fresh(p Apply) error {
	if a.lags && isClient(p.Pod) && isMinor(p.Change) {
		return fmt.Errorf("%w: %s was not applied, and %s must not be newer", ErrHeld, podAPIServer, p.Pod)
	}
	for _, e := range p.Expect {
		if key := releaseKey(e.Ref.Repository, e.Digest); a.fell[key] && !e.OnNode {
			return fmt.Errorf("%w: %s did not come up in %s", ErrHeld, e.Name, a.record.Denied[key].PodManifest)
		}
	}
	return nil
}

// waits tells an error that says not now from one that says it went wrong.
func waits(err error) bool { return errors.Is(err, ErrHeld) || errors.Is(err, ErrConflict) }

// apply makes the pod run its offer: it proves that kubelet will find what was
// staged, acts, and proves that the pod runs it.
func (a *Agent) apply(ctx context.Context, s Step) error {
	if s.Apply.Remove {
		return a.remove(ctx, s)
	}
	help := &rescue{agent: a, step: s, next: rescueAfter}
	err := a.preflight(ctx, s.Apply)
	if err != nil && !a.moved && a.isStopped(ctx, s.Apply) {
		// An earlier life has stopped it, and the registry is away.
		expect, failed := help.carry(ctx, "stopped by an apply: "+err.Error())
		if failed != nil {
			return err
		}
		s.Apply.Expect = expect
		return a.prove(ctx, s, nil)
	}
	if err != nil {
		return err
	}
	if err := a.act(ctx, s); err != nil {
		return err
	}
	if s.Data != nil {
		if err := a.Files.Keep(ctx, s.File, nil); err != nil {
			a.Log.Warn("rendered file stays", "cycle", a.cycle, "file", s.File, "err", err)
		}
	}
	return a.prove(ctx, s, help)
}

// isStopped reports that no container runs that an apply is about.
func (a *Agent) isStopped(ctx context.Context, p Apply) bool {
	all, _, err := a.Pods.Containers(ctx)
	inv := Inventory{Containers: all, NodeName: a.Policy.NodeName}
	containers := inv.podContainers(p.Namespace, p.Pod, p.Siblings)
	return err == nil && !slices.ContainsFunc(p.Expect, func(e Expectation) bool {
		c := container(containers, e.Container)
		return c != nil && c.Running
	})
}

// preflight is rule 5: pull policy Always makes the registry part of the start,
// so before anything is stopped, each floating tag must answer, and name what
// was staged. With IfNotPresent kubelet would start what the node has under
// that name, so CRI fetches it first.
func (a *Agent) preflight(ctx context.Context, p Apply) error {
	checked := map[Reference]bool{}
	for _, e := range p.Expect {
		if checked[e.Ref] || e.OnNode {
			continue
		}
		checked[e.Ref] = true
		now, err := a.resolve(ctx, e.Ref)
		switch {
		case err != nil:
			return fmt.Errorf("%w: registry away: %w", ErrHeld, err)
		case now.Digest != e.Digest:
			a.moved = true
			return fmt.Errorf("%w: %s has moved on to %s", ErrHeld, e.Ref, now.Digest)
		}
		if !p.PullFirst {
			continue
		}
		end := a.attend()
		id, err := a.Pods.Pull(ctx, e.Ref)
		end()
		switch {
		case err != nil:
			return fmt.Errorf("pull %s: %w", e.Ref, err)
		case e.Config != "" && id != e.Config:
			a.moved = true
			return fmt.Errorf("%w: %s has moved on to image id %s", ErrHeld, e.Ref, id)
		}
	}
	return nil
}

// wrote remembers that a pod manifest is ours.
func (r *Record) wrote(file string, data []byte) {
	if r.Wrote == nil {
		r.Wrote = map[string]digest.Digest{}
	}
	r.Wrote[file] = digest.FromBytes(data)
}

// fail remembers an apply that did not end well.
func (r *Record) fail(file string, f Failure) {
	if r.Failed == nil {
		r.Failed = map[string]Failure{}
	}
	r.Failed[file] = f
}
