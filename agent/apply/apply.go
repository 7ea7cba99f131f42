// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Executor makes pods run the releases that a step names, and runs their health checks. It saves each action in the
// record before the next one, so that the next start continues after a crash.
type Executor struct {
	Source        source.Registry
	Pods          node.Pods
	Images        node.ImageNamer
	Files         node.PodFiles
	Stager        ReleaseStager
	Readiness     Readiness     // nil: every running container counts as ready
	Inhibitor     Inhibitor     // nil: shutdowns are not delayed
	Lock          *fleet.Keeper // configured by Policy.Lock
	Quorum        Quorum        // nil: the control plane is not checked
	Meter         Meter         // nil: restarts are not counted
	Records       *record.Store
	Observed      *node.State
	Policy        policy.Policy
	Log           *slog.Logger
	Now           func() time.Time
	Jitter        func() float64 // random numbers from [0,1)
	Progress      *status.Reporter
	LocalRegistry *localregistry.Keeper // nil: the node has no local registry
	Caller        Caller
}

// Caller is the client that waits for restarts, and may leave before they begin.
type Caller interface {
	// Until returns a context that ends when the caller leaves before the restart of a pod manifest has begun.
	Until(ctx context.Context, file string) (context.Context, context.CancelFunc)
	// Begin reports whether the restart of a pod manifest may begin: its caller has not left.
	Begin(file string) bool
}

// Result is the result of a step on a pod.
type Result struct {
	Err     error
	Applied bool // the pod runs the releases of the step
	// RollBack: the pod did not come up, and the record holds the pending rollback.
	RollBack bool
	// FailedReleases are the releases that did not come up, by "repository@digest".
	FailedReleases []string
	// TagMoved: a tag names another digest than the step.
	TagMoved bool
	// Unchecked are the containers whose readiness could not be checked.
	Unchecked []string
	// Canceled: the caller left before the pod was touched.
	Canceled bool
}

// errCanceled is returned if the caller left before the pod was touched.
var errCanceled = errors.New("canceled by its caller")

// attempt is one apply, rollback or health check of a pod.
type attempt struct {
	*Executor
	step             plan.Step
	began, acted, up time.Time
	phase            string  // the last one reported; "" if none
	shutdownTimedOut bool    // the old pod was still up after its grace period
	worse            bool    // a container that ran before the restart has not become healthy
	rescue           *rescue // nil: kubelet starts the pod without help
	result           Result
}

func (x *Executor) newAttempt(s plan.Step) *attempt {
	return &attempt{Executor: x, step: s, began: time.Now()}
}

// ended reports the end of the attempt and returns the result for err.
func (a *attempt) ended(err error) Result {
	a.Progress.End(status.Progress{
		Reference: a.step.Apply.Pod, Phase: cmp.Or(a.phase, status.PhaseWaiting), PodManifest: a.step.File,
	}, err)
	a.result.Err = err
	return a.result
}

// Apply applies a step; against is the reason not to (nil: none). Apply deletes the approval, so that a failed apply is
// not retried without a new one. The approval stays if the restart was interrupted or could not be observed.
func (x *Executor) Apply(ctx context.Context, s plan.Step, against error) Result {
	a := x.newAttempt(s)
	err := against
	if err == nil {
		err = a.restartAndVerify(ctx)
	}
	if errors.Is(err, errCanceled) {
		return a.canceled()
	}
	a.count(ctx, Measured{}, err)
	if err != nil && ctx.Err() != nil || release.IsUnobserved(err) {
		return a.ended(err)
	}
	rec, by := &x.Records.Record, a.approver()
	approval, approved := rec.Approved[s.File]
	rec.Approved.Delete(s.File)
	rec.HeldBack.Delete(s.File)
	switch {
	case err == nil:
		a.result.Applied = true
		a.noteRuns(status.ResultApplied, by)
		rec.Failed.Delete(s.File)
		rec.EndHealthyPlaces(s.File, s.Data, a.step.Healthy())
	case release.IsDown(err):
		return a.failed(ctx, by, err)
	case !release.IsWaiting(err):
		a.noteEnd(status.ResultFailed, by, err)
		rec.Failed.Set(s.File, record.Failure{At: x.Now().UTC(), Offer: s.Apply.Offer, Reason: err.Error()})
	case approved && approval.By.Kind != status.ByAuto:
		rec.HeldBack.Set(s.File, record.HeldApply{
			At: x.Now().UTC(), Offer: s.Apply.Offer, Kind: status.ErrorKindOf(err),
			Reason: strings.TrimPrefix(err.Error(), release.ErrHeld.Error()+": "),
		})
	}
	return a.ended(errors.Join(err, x.Records.Save(ctx)))
}

// noteBegun records which containers run, unless an approval says it: an apply by mode auto that is killed must not
// count what it stopped as broken before.
func (a *attempt) noteBegun(ctx context.Context) error {
	if a.step.Apply.Began == nil {
		return nil
	}
	undo := a.Records.Record.Approved.Undo(a.step.File)
	a.Records.Record.Approved.Set(a.step.File, *a.step.Apply.Began)
	if err := a.Records.Save(ctx); err != nil {
		undo()
		return fmt.Errorf("%w: %w", release.ErrHeld, err)
	}
	return nil
}

// canceled ends a restart that has not begun.
func (a *attempt) canceled() Result {
	a.ended(context.Canceled)
	a.result.Err, a.result.Canceled = nil, true
	return a.result
}

// begins returns errCanceled if the caller has left. After a nil result the attempt continues without the caller.
func (a *attempt) begins() error {
	if !a.Caller.Begin(a.step.File) {
		return errCanceled
	}
	return nil
}

// prepare runs do, which restarts nothing, until the caller leaves.
func (a *attempt) prepare(ctx context.Context, do func(context.Context) error) error {
	until, end := a.Caller.Until(ctx, a.step.File)
	defer end()
	err := do(until)
	if until.Err() != nil && ctx.Err() == nil {
		return errCanceled
	}
	return err
}

// restartAndVerify checks that kubelet will start the staged releases, restarts the pod, and runs the health check.
func (a *attempt) restartAndVerify(ctx context.Context) error {
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
		// An earlier run that was killed has stopped the pod, and the registry does not answer.
		expect, pinErr := a.pinToStagedDigest(ctx, "stopped by an apply: "+err.Error())
		if pinErr != nil {
			return err
		}
		a.step.Apply.Expect = expect
		return a.awaitHealthy(ctx)
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
	if err := a.noteBegun(ctx); err != nil {
		return err
	}
	if err := a.act(ctx, a.step); err != nil {
		return err
	}
	if a.step.Data != nil {
		if err := a.Files.Keep(ctx, a.step.File, nil); err != nil {
			a.Log.Warn("cannot remove the rendered file", "file", a.step.File, "err", err)
		}
	}
	a.rescue = &rescue{next: rescueAfter}
	return a.awaitHealthy(ctx)
}

// Verify runs the health check of a pod without an apply: kubelet started it, or an apply was interrupted (approved).
func (x *Executor) Verify(ctx context.Context, s plan.Step, approved bool) Result {
	a, rec := x.newAttempt(s), &x.Records.Record
	result, by := status.ResultPickedUp, status.Actor{Kind: status.ByKubelet}
	if approved {
		result, by = status.ResultApplied, a.approver()
	}
	err := a.awaitHealthy(ctx)
	switch {
	case err == nil:
		if a.noteRuns(result, by) {
			for _, p := range s.Healthy() {
				rec.Denied.Delete(release.Key(p.Repository, p.Digest))
			}
		}
		rec.Failed.Delete(s.File)
		rec.EndHealthyPlaces(s.File, s.Data, s.Healthy())
		err = x.Records.Save(ctx)
	case ctx.Err() == nil && release.IsDown(err):
		return a.failed(ctx, by, err)
	}
	return a.ended(err)
}

// noteRuns records that the releases of a step run. Only verified ones become known to be good.
func (a *attempt) noteRuns(result status.Result, by status.Actor) (verified bool) {
	s, rec := a.step, &a.Records.Record
	if len(a.result.Unchecked) == 0 {
		a.noteEnd(result, by, nil)
		rec.NoteHealthy(s.File, s.Healthy(), result == status.ResultPickedUp, a.Policy.Prune.Keep)
		rec.Unchecked.Delete(s.File)
		return true
	}
	err := &release.UncheckedError{Containers: a.result.Unchecked}
	if rec.Unchecked[s.File].Running != s.Apply.Runs() { // once for each release
		a.noteEnd(result, by, err)
	}
	rec.Unchecked.Set(s.File, record.Unchecked{
		At: a.Now().UTC(), Running: s.Apply.Runs(), Reason: outside.Text(err.Error()),
	})
	return false
}

// inventory returns an inventory with only the containers that CRI shows now.
func (x *Executor) inventory(ctx context.Context) (node.Inventory, error) {
	containers, _, err := x.Pods.Containers(ctx)
	return node.Inventory{Containers: containers, NodeName: x.Policy.NodeName}, err
}
