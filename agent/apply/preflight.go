// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// preflight is rule 5. With pull policy Always kubelet asks the registry at each start, so
// each floating tag must name the staged digest before anything is stopped. With
// IfNotPresent kubelet starts what the node has under that name, so CRI pulls it first.
func (r *restart) preflight(ctx context.Context) error {
	checked := map[release.Reference]bool{}
	for _, e := range r.step.Apply.Expect {
		if checked[e.Ref] || e.OnNode {
			continue
		}
		checked[e.Ref] = true
		if e.Bound {
			if err := r.checkBound(ctx, e); err != nil {
				return err
			}
			continue
		}
		now, err := r.resolve(ctx, e.Ref)
		switch {
		case err != nil:
			return fmt.Errorf("%w: registry away: %w", release.ErrHeld, err)
		case now.Digest != e.Digest:
			return r.tagMoved("%s has moved on to %s", e.Ref, now.Digest)
		}
		if !r.step.Apply.PullFirst {
			continue
		}
		stop := r.Progress.Heartbeat()
		id, err := r.Pods.Pull(ctx, e.Ref)
		stop()
		switch {
		case err != nil:
			return fmt.Errorf("pull %s: %w", e.Ref, err)
		case e.Config != "" && id != e.Config:
			return r.tagMoved("%s has moved on to image id %s", e.Ref, id)
		}
	}
	return nil
}

// checkBound checks that kubelet can start an image by its digest: with pull policy Always it
// asks the registry for the digest, with IfNotPresent CRI has to list it.
func (r *restart) checkBound(ctx context.Context, e plan.Expectation) error {
	if !r.step.Apply.PullFirst {
		if err := r.asks(ctx, e); err != nil {
			return fmt.Errorf("%w: registry away: %w", release.ErrHeld, err)
		}
		return nil
	}
	pin := release.Pin{Repository: e.Ref.Repository, Digest: e.Digest}
	if err := r.Images.Name(ctx, pin); err != nil {
		return fmt.Errorf("name %s: %w", e.Name, err)
	}
	_, err := r.Stager.AwaitListed(ctx, release.Key(pin.Repository, pin.Digest))
	return err
}

// asks sends the request that kubelet would send.
func (r *Restarter) asks(ctx context.Context, e plan.Expectation) error {
	if !e.Bound {
		_, err := r.resolve(ctx, e.Ref)
		return err
	}
	defer r.Progress.Heartbeat()()
	_, err := r.Source.Describe(ctx, e.Ref.Repository, e.Digest)
	return err
}

// tagMoved is the error of a restart for which a tag names another image than the step.
func (r *restart) tagMoved(format string, args ...any) error {
	r.result.TagMoved = true
	return fmt.Errorf("%w: %s", release.ErrHeld, fmt.Sprintf(format, args...))
}

func (r *Restarter) resolve(ctx context.Context, ref release.Reference) (release.Resolved, error) {
	defer r.Progress.Heartbeat()()
	return r.Source.Resolve(ctx, ref)
}

// isStopped reports that none of the containers that the step names runs.
func (r *restart) isStopped(ctx context.Context) bool {
	containers, err := r.containers(ctx, r.step.Apply)
	return err == nil && !slices.ContainsFunc(r.step.Apply.Expect, func(e plan.Expectation) bool {
		c := node.FindContainer(containers, e.Container)
		return c != nil && c.Running
	})
}
