// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Restarter makes pods run what a step names, and proves that they do. It saves what it did
// in the record before the next act, so that the next start continues after a crash.
type Restarter struct {
	Source    source.Registry
	Pods      node.Pods
	Images    node.ImageNamer
	Files     node.PodFiles
	Stager    ReleaseStager
	Readiness Readiness    // nil: every running container counts as ready
	Inhibitor Inhibitor    // nil: shutdowns are not delayed
	FleetLock FleetLock    // required where Policy.Lock covers a pod
	Quorum    Quorum       // nil: the control plane is not asked
	Meter     RestartMeter // nil: nothing is counted
	Records   *record.Store
	Policy    policy.Policy
	Log       *slog.Logger
	Now       func() time.Time
	Jitter    func() float64 // from [0,1)
	Progress  *status.Reporter
	OwnHost   *ownhost.Keeper // nil: the node has no own host
}

// RestartResult is how a step on a pod has ended.
type RestartResult struct {
	Err     error
	Applied bool // the pod runs what the step names
	// RollBack: the pod did not come up, and the record holds the pending rollback.
	RollBack bool
	// FailedReleases did not come up, by "repository@digest".
	FailedReleases []string
	// TagMoved: a tag names another digest than the step.
	TagMoved bool
	// Unchecked are the containers whose readiness could not be checked.
	Unchecked []string
}

// restart is one restart of a pod.
type restart struct {
	*Restarter
	step             plan.Step
	began, acted, up time.Time
	phase            string // the last one that was reported; empty: none
	shutdownTimedOut bool   // the old pod was still up when its grace was over
	result           RestartResult
}

func (r *Restarter) begin(s plan.Step) *restart {
	return &restart{Restarter: r, step: s, began: time.Now()}
}

// ended reports the end of the restart, and returns the result with the error that it ended with.
func (r *restart) ended(err error) RestartResult {
	r.Progress.End(status.Progress{
		Reference: r.step.Apply.Pod, Phase: cmp.Or(r.phase, status.PhaseWaiting), PodManifest: r.step.File,
	}, err)
	r.result.Err = err
	return r.result
}

// Apply applies a step; against is why it must not be applied (nil: it may be). Apply deletes
// the approval, so that a failed apply is not retried without a new one. The approval stays
// where the restart was interrupted or could not be observed.
func (r *Restarter) Apply(ctx context.Context, s plan.Step, against error) RestartResult {
	x := r.begin(s)
	err := against
	if err == nil {
		err = x.apply(ctx)
	}
	x.count(ctx, Restart{}, err)
	if err != nil && ctx.Err() != nil || release.IsUnobserved(err) {
		return x.ended(err)
	}
	rec, by := &r.Records.Record, historian{x}.approver()
	rec.Approved.Delete(s.File)
	switch {
	case err == nil:
		x.result.Applied = true
		historian{x}.note(status.ResultApplied, by, nil)
		rec.Failed.Delete(s.File)
		rec.NoteProof(s.File, x.step.Proved(), false, r.Policy.Prune.Keep)
		rec.EndProvedPlaces(s.File, s.Data, x.step.Proved())
	case release.IsDown(err):
		return x.failed(ctx, by, err)
	case !release.IsWaiting(err):
		historian{x}.note(status.ResultFailed, by, err)
		rec.Failed.Set(s.File, record.Failure{At: r.Now().UTC(), Offer: s.Apply.Offer, Reason: err.Error()})
	}
	return x.ended(errors.Join(err, r.Records.Save(ctx)))
}

// apply checks that kubelet will start what was staged, restarts the pod, and proves it.
func (r *restart) apply(ctx context.Context) error {
	if r.step.Apply.Remove {
		if err := (fleet{r}).enter(ctx); err != nil {
			return err
		}
		return r.Remove(ctx, r.step)
	}
	help := &rescue{restart: r, next: rescueAfter}
	err := r.preflight(ctx)
	if err != nil && !r.result.TagMoved && r.isStopped(ctx) {
		// A run that was killed has stopped the pod, and the registry does not answer.
		expect, pinErr := help.pinToStagedDigest(ctx, "stopped by an apply: "+err.Error())
		if pinErr != nil {
			return err
		}
		r.step.Apply.Expect = expect
		return r.prove(ctx, nil)
	}
	if err != nil {
		return err
	}
	if err := (fleet{r}).enter(ctx); err != nil {
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

// Prove proves what a pod runs without an apply: kubelet started it, or an apply was
// interrupted (approved).
func (r *Restarter) Prove(ctx context.Context, s plan.Step, approved bool) RestartResult {
	x, rec := r.begin(s), &r.Records.Record
	result, by := status.ResultAdopted, status.Actor{Kind: status.ByKubelet}
	if approved {
		result, by = status.ResultApplied, historian{x}.approver()
	}
	err := x.prove(ctx, nil)
	switch {
	case err == nil:
		historian{x}.note(result, by, nil)
		rec.NoteProof(s.File, s.Proved(), !approved, r.Policy.Prune.Keep)
		for _, p := range s.Proved() {
			rec.Denied.Delete(release.Key(p.Repository, p.Digest))
		}
		rec.Failed.Delete(s.File)
		rec.EndProvedPlaces(s.File, s.Data, s.Proved())
		err = r.Records.Save(ctx)
	case ctx.Err() == nil && release.IsDown(err):
		return x.failed(ctx, by, err)
	}
	return x.ended(err)
}

// inventory holds the containers that CRI shows now, and nothing else.
func (r *Restarter) inventory(ctx context.Context) (node.Inventory, error) {
	containers, _, err := r.Pods.Containers(ctx)
	return node.Inventory{Containers: containers, NodeName: r.Policy.NodeName}, err
}
