// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Restarter makes pods run what a step names, and proves that they do. It decides
// nothing: how a step ended is its result, and what it did is in the record before the
// next act, so that a crash in the middle goes on.
type Restarter struct {
	Source    source.TagResolver
	Pods      node.Pods
	Images    node.ImageNamer
	Files     node.PodFiles
	Stager    ReleaseStager
	Readiness Readiness    // nil: what runs is ready
	Inhibitor Inhibitor    // nil: nobody delays a shutdown
	Meter     RestartMeter // nil: nobody counts
	Records   *record.Store
	Policy    policy.Policy
	Log       *slog.Logger
	Now       func() time.Time
	Progress  *status.Reporter
}

// ReleaseStager stages what a rollback needs and the node has lost.
type ReleaseStager interface {
	// Stage stages a release. See Stager.
	Stage(ctx context.Context, r release.Release) error
	// AwaitListed waits until CRI lists an image, and returns its id.
	AwaitListed(ctx context.Context, name string) (digest.Digest, error)
}

// RestartResult is how a step on a pod has ended.
type RestartResult struct {
	Err     error
	Applied bool // the pod runs what was to be applied
	// RollBack: the pod did not come up, and the record has what it is rolled back to.
	RollBack bool
	// FailedReleases did not come up, by "repository@digest".
	FailedReleases []string
	// TagMoved: a tag names something else than what was to be applied.
	TagMoved bool
	// Unchecked are the containers whose readiness nobody could check.
	Unchecked []string
}

// restart is one restart of a pod under way.
type restart struct {
	*Restarter
	step             plan.Step
	began, acted, up time.Time
	shutdownTimedOut bool // the pod that was taken down did not go in time
	result           RestartResult
}

func (r *Restarter) begin(s plan.Step) *restart {
	return &restart{Restarter: r, step: s, began: time.Now()}
}

// ended is the result with the error that the restart ended with.
func (r *restart) ended(err error) RestartResult {
	r.result.Err = err
	return r.result
}

// Apply applies a step, unless something speaks against it (nil: nothing does). The
// approval is used up either way, but where nobody could look: what failed is not tried
// again by itself.
func (r *Restarter) Apply(ctx context.Context, s plan.Step, against error) RestartResult {
	x := r.begin(s)
	err := against
	if err == nil {
		err = x.apply(ctx)
	}
	x.count(ctx, Restart{}, err)
	if err != nil && ctx.Err() != nil || release.IsUnseen(err) {
		return x.ended(err) // the approval stands: the next start, or the next cycle, goes on
	}
	rec := &r.Records.Record
	rec.Approved.Delete(s.File)
	switch {
	case err == nil:
		x.result.Applied = true
		rec.Failed.Delete(s.File)
		rec.NoteProof(s.File, x.step.Proved(), false, r.Policy.Prune.Keep)
		rec.MoveOn(s.File, s.Data, x.step.Proved())
	case release.IsDown(err):
		return x.failed(ctx, err)
	case !release.IsWaiting(err):
		rec.Failed.Set(s.File, record.Failure{At: r.Now().UTC(), Offer: s.Apply.Offer, Reason: err.Error()})
	}
	return x.ended(errors.Join(err, r.Records.Save(ctx)))
}

// apply makes the pod run its offer: it proves that kubelet will find what was
// staged, acts, and proves that the pod runs it.
func (r *restart) apply(ctx context.Context) error {
	if r.step.Apply.Remove {
		return r.Remove(ctx, r.step)
	}
	help := &rescue{restart: r, next: rescueAfter}
	err := r.preflight(ctx)
	if err != nil && !r.result.TagMoved && r.isStopped(ctx) {
		// An earlier life has stopped it, and the registry is away.
		expect, failed := help.pinToStagedDigest(ctx, "stopped by an apply: "+err.Error())
		if failed != nil {
			return err
		}
		r.step.Apply.Expect = expect
		return r.prove(ctx, nil)
	}
	if err != nil {
		return err
	}
	if err := r.act(ctx, r.step); err != nil {
		return err
	}
	if r.step.Data != nil {
		if err := r.Files.Keep(ctx, r.step.File, nil); err != nil {
			r.Log.Warn("rendered file stays", "file", r.step.File, "err", err)
		}
	}
	return r.prove(ctx, help)
}

// isStopped reports that no container runs that an apply is about.
func (r *restart) isStopped(ctx context.Context) bool {
	containers, err := r.containers(ctx)
	return err == nil && !slices.ContainsFunc(r.step.Apply.Expect, func(e plan.Expectation) bool {
		c := node.FindContainer(containers, e.Container)
		return c != nil && c.Running
	})
}

// containers are those of the pod, as CRI shows them now.
func (r *restart) containers(ctx context.Context) ([]node.Container, error) {
	all, _, err := r.Pods.Containers(ctx)
	inv := node.Inventory{Containers: all, NodeName: r.Policy.NodeName}
	return inv.PodContainers(r.step.Apply.Namespace, r.step.Apply.Pod, r.step.Apply.Siblings), err
}

// preflight is rule 5: pull policy Always makes the registry part of the start,
// so before anything is stopped, each floating tag must answer, and name what
// was staged. With IfNotPresent kubelet would start what the node has under
// that name, so CRI fetches it first.
func (r *restart) preflight(ctx context.Context) error {
	checked := map[release.Reference]bool{}
	for _, e := range r.step.Apply.Expect {
		if checked[e.Ref] || e.OnNode {
			continue
		}
		checked[e.Ref] = true
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

// tagMoved ends a restart for which a tag names something else by now.
func (r *restart) tagMoved(format string, args ...any) error {
	r.result.TagMoved = true
	return fmt.Errorf("%w: %s", release.ErrHeld, fmt.Sprintf(format, args...))
}

// resolve asks what a tag names now.
func (r *restart) resolve(ctx context.Context, ref release.Reference) (release.Resolved, error) {
	defer r.Progress.Heartbeat()()
	return r.Source.Resolve(ctx, ref)
}

// count counts how the restart ended. One that was cut short, or that nobody
// could see, has not ended: the next start, or the next cycle, goes on.
func (r *restart) count(ctx context.Context, how Restart, err error) {
	if r.Meter == nil || err != nil && ctx.Err() != nil || release.IsUnseen(err) {
		return
	}
	switch {
	case release.IsWaiting(err):
		how.Result = status.ResultHeld
	case err != nil:
		how.Result = status.ResultFailed
	case how.Back:
		how.Result = status.ResultBack
	default:
		how.Result = status.ResultApplied
	}
	how.Took = time.Since(r.began)
	if err == nil && !r.acted.IsZero() {
		how.Up = r.up.Sub(r.acted)
	}
	r.Meter.Restarted(how)
}
