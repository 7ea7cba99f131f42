// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// failed remembers that a pod did not come up, and brings it back to what ran well
// before, if there is something. What it did not come up with is denied from then
// on. All that is kept before the first act: a crash in the middle goes on.
func (a *Agent) failed(ctx context.Context, s Step, cause error) error {
	a.Log.Warn("pod did not come up", "cycle", a.cycle, "file", s.File, "err", cause)
	f := Failure{At: a.Now().UTC(), Offer: s.Apply.Offer, Reason: cause.Error()}
	if s.Do == StepProve {
		f.Runs = s.Apply.runs()
	}
	back := s.Apply.Back
	if back == nil && s.Apply.NoBack != "" {
		f.Reason += "; it stays as it is: " + s.Apply.NoBack
		cause = fmt.Errorf("%w; it stays as it is: %s", cause, s.Apply.NoBack)
	}
	a.record.fail(s.File, f)
	if back == nil {
		return errors.Join(cause, a.save(ctx))
	}
	var from []string
	for _, e := range s.Apply.Expect {
		if at, ok := back.at(e); ok && at.Digest != e.Digest {
			a.record.deny(releaseKey(e.Ref.Repository, e.Digest), Denial{
				At: a.Now().UTC(), Name: e.Name, PodManifest: s.File, Reason: cause.Error(),
			})
			from = append(from, e.Container+" "+e.Name)
		}
	}
	o := *back
	o.Reason = "rolled back from " + strings.Join(from, ", ") + ": " + cause.Error()
	a.record.override(s.File, o)
	if err := a.save(ctx); err != nil {
		return errors.Join(cause, err)
	}
	if err := a.bringBack(ctx, s.File); err != nil {
		return fmt.Errorf("%w; roll back: %w", cause, err)
	}
	return fmt.Errorf("%w; rolled back to %s", cause, o.releases())
}

// releases are what an override names, for people.
func (o Override) releases() string {
	var out []string
	for _, place := range slices.Sorted(maps.Keys(o.Images)) {
		out = append(out, o.Images[place].Tag)
	}
	return strings.Join(slices.Compact(out), ", ")
}

// bringBack rolls a pod back as the node is now: the plan that failed is of the
// node as it was.
func (a *Agent) bringBack(ctx context.Context, file string) error {
	inv, err := a.inventory(ctx)
	if err != nil {
		return err
	}
	plan := Decide(inv, nil, a.record, a.Policy, a.Now())
	for _, s := range plan.Steps {
		if s.Do == StepRollBack && s.File == file {
			return a.rollBack(ctx, s)
		}
	}
	return fmt.Errorf("%w: %s", ErrHeld, "another operation owns the node")
}

// rollBack makes a pod run the digests that its override names, and proves that it
// does. One that cannot be done now stays to be done.
func (a *Agent) rollBack(ctx context.Context, s Step) error {
	o := a.record.Overrides[s.File]
	for _, place := range slices.Sorted(maps.Keys(o.Images)) {
		if err := a.provide(ctx, o.Images[place]); err != nil {
			return err
		}
	}
	var err error
	if s.Apply.Aside {
		err = a.act(ctx, s)
	}
	switch {
	case errors.Is(err, ErrConflict):
		delete(a.record.Overrides, s.File) // somebody has another idea
		return errors.Join(err, a.save(ctx))
	case err == nil:
		err = a.prove(ctx, s, nil)
	}
	if err != nil && ctx.Err() != nil {
		return err // interrupted: the next start goes on
	}
	o.Pending = false
	a.record.override(s.File, o)
	if err != nil {
		err = fmt.Errorf("%s does not come up either: %w", o.releases(), err)
		a.record.fail(s.File, Failure{
			At: a.Now().UTC(), Offer: s.Apply.Offer, Runs: s.Apply.runs(), Reason: o.Reason + "; " + err.Error(),
		})
	} else {
		a.proved[s.File] = false
		if f := a.record.Failed[s.File]; f.Runs != "" {
			delete(a.record.Failed, s.File)
		}
	}
	return errors.Join(err, a.save(ctx))
}

// provide makes sure that kubelet finds a digest on the node.
func (a *Agent) provide(ctx context.Context, o Overridden) error {
	err := a.Images.Name(ctx, o.Pin)
	if errors.Is(err, ErrNotFound) { // lost, as on a containerd that knows no pins
		r, known := a.record.Releases[releaseKey(o.Repository, o.Digest)]
		if !known {
			r = Release{Repository: o.Repository, Tag: o.Follow, Digest: o.Digest}
		}
		if err = a.stage(ctx, r); err == nil {
			err = a.Images.Name(ctx, o.Pin)
		}
	}
	name := releaseKey(o.Repository, o.Digest)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_, listed, err := a.awaitListed(ctx, name)
	switch {
	case err != nil:
		return fmt.Errorf("%s: cri: %w", name, err)
	case !listed:
		return fmt.Errorf("%s: cri does not list it after %s", name, listPatience)
	}
	return nil
}

// proveRunning proves what a pod runs by nobody's approval.
func (a *Agent) proveRunning(ctx context.Context, s Step) error {
	err := a.prove(ctx, s, nil)
	switch {
	case err == nil:
		a.proved[s.File] = true
		for _, e := range s.Apply.Expect {
			delete(a.record.Denied, releaseKey(e.Ref.Repository, e.Digest))
		}
		delete(a.record.Failed, s.File)
		if differs(a.record.Overrides[s.File], s.Apply.Expect) {
			delete(a.record.Overrides, s.File) // somebody has brought it to something else, which runs well
		}
		return a.save(ctx)
	case ctx.Err() != nil:
		return err
	}
	return a.failed(ctx, s, err)
}
