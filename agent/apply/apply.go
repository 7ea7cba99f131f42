// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Executor makes pods run what a step names, and proves that they do. It saves what it did
// in the record before the next act, so that the next start continues after a crash.
type Executor struct {
	Source    source.Registry
	Pods      node.Pods
	Images    node.ImageNamer
	Files     node.PodFiles
	Stager    ReleaseStager
	Readiness Readiness     // nil: every running container counts as ready
	Inhibitor Inhibitor     // nil: shutdowns are not delayed
	Lock      *fleet.Keeper // of Policy.Lock
	Quorum    Quorum        // nil: the control plane is not asked
	Meter     Meter         // nil: nothing is counted
	Records   *record.Store
	Policy    policy.Policy
	Log       *slog.Logger
	Now       func() time.Time
	Jitter    func() float64 // from [0,1)
	Progress  *status.Reporter
	OwnHost   *ownhost.Keeper // nil: the node has no own host
	Caller    Caller
}

// Caller is who waits for restarts, and may leave before they begin.
type Caller interface {
	// Until returns a context that ends when the caller leaves before the restart of a pod manifest has begun.
	Until(ctx context.Context, file string) (context.Context, context.CancelFunc)
	// Begin reports whether the restart of a pod manifest may begin: its caller has not left.
	Begin(file string) bool
}

// Result is how a step on a pod has ended.
type Result struct {
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
	// Canceled: the caller left before anything was done to the pod.
	Canceled bool
}

// errCanceled: the caller left before anything was done to the pod.
var errCanceled = errors.New("canceled by its caller")

// attempt is one apply, rollback or proof of a pod.
type attempt struct {
	*Executor
	step             plan.Step
	began, acted, up time.Time
	phase            string  // the last one that was reported; empty: none
	shutdownTimedOut bool    // the old pod was still up when its grace was over
	rescue           *rescue // nil: kubelet alone starts the pod
	result           Result
}

func (x *Executor) newAttempt(s plan.Step) *attempt {
	return &attempt{Executor: x, step: s, began: time.Now()}
}

// ended reports the end of the attempt, and returns the result with the error that it ended with.
func (a *attempt) ended(err error) Result {
	a.Progress.End(status.Progress{
		Reference: a.step.Apply.Pod, Phase: cmp.Or(a.phase, status.PhaseWaiting), PodManifest: a.step.File,
	}, err)
	a.result.Err = err
	return a.result
}

// Apply applies a step; against is why it must not be applied (nil: it may be). Apply deletes
// the approval, so that a failed apply is not retried without a new one. The approval stays
// where the restart was interrupted or could not be observed.
func (x *Executor) Apply(ctx context.Context, s plan.Step, against error) Result {
	a := x.newAttempt(s)
	err := against
	if err == nil {
		err = a.restartAndProve(ctx)
	}
	if errors.Is(err, errCanceled) {
		return a.canceled()
	}
	a.count(ctx, Measured{}, err)
	if err != nil && ctx.Err() != nil || release.IsUnobserved(err) {
		return a.ended(err)
	}
	rec, by := &x.Records.Record, a.approver()
	_, approved := rec.Approved[s.File]
	rec.Approved.Delete(s.File)
	rec.HeldBack.Delete(s.File)
	switch {
	case err == nil:
		a.result.Applied = true
		a.noteEnd(status.ResultApplied, by, nil)
		rec.Failed.Delete(s.File)
		rec.NoteProof(s.File, a.step.Proved(), false, x.Policy.Prune.Keep)
		rec.EndProvedPlaces(s.File, s.Data, a.step.Proved())
	case release.IsDown(err):
		return a.failed(ctx, by, err)
	case !release.IsWaiting(err):
		a.noteEnd(status.ResultFailed, by, err)
		rec.Failed.Set(s.File, record.Failure{At: x.Now().UTC(), Offer: s.Apply.Offer, Reason: err.Error()})
	case approved:
		rec.HeldBack.Set(s.File, record.HeldApply{
			At: x.Now().UTC(), Offer: s.Apply.Offer, Kind: status.ErrorKindOf(err),
			Reason: strings.TrimPrefix(err.Error(), release.ErrHeld.Error()+": "),
		})
	}
	return a.ended(errors.Join(err, x.Records.Save(ctx)))
}

// canceled ends a restart that has not begun.
func (a *attempt) canceled() Result {
	a.ended(context.Canceled)
	a.result.Err, a.result.Canceled = nil, true
	return a.result
}

// begins returns errCanceled if the caller has left. What follows goes on without the caller.
func (a *attempt) begins() error {
	if !a.Caller.Begin(a.step.File) {
		return errCanceled
	}
	return nil
}

// prepare does what restarts nothing: it ends when the caller leaves.
func (a *attempt) prepare(ctx context.Context, do func(context.Context) error) error {
	until, end := a.Caller.Until(ctx, a.step.File)
	defer end()
	err := do(until)
	if until.Err() != nil && ctx.Err() == nil {
		return errCanceled
	}
	return err
}

// restartAndProve checks that kubelet will start what was staged, restarts the pod, and proves it.
func (a *attempt) restartAndProve(ctx context.Context) error {
	if a.step.Apply.Remove {
		if err := a.prepare(ctx, a.enterFleet); err != nil {
			return err
		}
		if err := a.begins(); err != nil {
			return err
		}
		return a.Remove(ctx, a.step)
	}
	err := a.prepare(ctx, a.preflight)
	if errors.Is(err, errCanceled) {
		return err
	}
	if err != nil && !a.result.TagMoved && a.isStopped(ctx) {
		// A run that was killed has stopped the pod, and the registry does not answer.
		expect, pinErr := a.pinToStagedDigest(ctx, "stopped by an apply: "+err.Error())
		if pinErr != nil {
			return err
		}
		a.step.Apply.Expect = expect
		return a.awaitProof(ctx)
	}
	if err != nil {
		return err
	}
	if err := a.prepare(ctx, a.enterFleet); err != nil {
		return err
	}
	if err := a.begins(); err != nil {
		return err
	}
	if err := a.act(ctx, a.step); err != nil {
		return err
	}
	if a.step.Data != nil {
		if err := a.Files.Keep(ctx, a.step.File, nil); err != nil {
			a.Log.Warn("rendered file stays", "file", a.step.File, "err", err)
		}
	}
	a.rescue = &rescue{next: rescueAfter}
	return a.awaitProof(ctx)
}

// Prove proves what a pod runs without an apply: kubelet started it, or an apply was
// interrupted (approved).
func (x *Executor) Prove(ctx context.Context, s plan.Step, approved bool) Result {
	a, rec := x.newAttempt(s), &x.Records.Record
	result, by := status.ResultAdopted, status.Actor{Kind: status.ByKubelet}
	if approved {
		result, by = status.ResultApplied, a.approver()
	}
	err := a.awaitProof(ctx)
	switch {
	case err == nil:
		a.noteEnd(result, by, nil)
		rec.NoteProof(s.File, s.Proved(), !approved, x.Policy.Prune.Keep)
		for _, p := range s.Proved() {
			rec.Denied.Delete(release.Key(p.Repository, p.Digest))
		}
		rec.Failed.Delete(s.File)
		rec.EndProvedPlaces(s.File, s.Data, s.Proved())
		err = x.Records.Save(ctx)
	case ctx.Err() == nil && release.IsDown(err):
		return a.failed(ctx, by, err)
	}
	return a.ended(err)
}

// inventory holds the containers that CRI shows now, and nothing else.
func (x *Executor) inventory(ctx context.Context) (node.Inventory, error) {
	containers, _, err := x.Pods.Containers(ctx)
	return node.Inventory{Containers: containers, NodeName: x.Policy.NodeName}, err
}
