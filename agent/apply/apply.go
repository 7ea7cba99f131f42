// SPDX-License-Identifier: Apache-2.0

// Package apply makes pods run the releases that a step of a plan names, and runs their health checks. It decides
// nothing: a failed step leaves the node as it was or records a pending rollback, and reports both in its Result.
//
// A rolled back pod must run another digest than its tag names, perhaps without a registry. So the override names
// repository:tag@digest with IfNotPresent, and containerd gets a record repository@digest first. Why a lost registry is
// answered by an override of the staged digest: under Always kubelet retries ever later, and after an outage of 45 s a
// pod was down for 87.
package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/manifests"
)

// ReleaseStager stages releases that a rollback needs and the node has lost.
type ReleaseStager interface {
	Stage(ctx context.Context, r release.Release) error
	// AwaitListed waits until CRI lists an image, and returns its id.
	AwaitListed(ctx context.Context, name string) (digest.Digest, error)
}

// Inhibitor delays a shutdown of the node.
type Inhibitor interface {
	// Inhibit delays a shutdown until release is called, as long as the node allows.
	Inhibit(ctx context.Context, why string) (release func(), err error)
}

// Meter counts applies and rollbacks.
type Meter interface {
	// Restarted counts a finished apply or rollback.
	Restarted(m Measured)
}

// Measured describes a finished apply or rollback.
type Measured struct {
	Back   bool // it was a rollback
	ByHand bool // a person requested the rollback; else it followed a failure
	Result status.Result
	// Took covers the check before the restart, the restart, and the health check with its settle time.
	Took time.Duration
	// Up is the time from the start of the restart until the pod ran the releases of the step, in steps of half a
	// second. Zero if the pod did not come up or was not restarted.
	Up time.Duration
}

// count counts the end of a restart. A restart that was interrupted or could not be observed continues in the next
// cycle, and is counted there.
func (a *attempt) count(ctx context.Context, how Measured, err error) {
	if a.Meter == nil || err != nil && ctx.Err() != nil || release.IsUnobserved(err) {
		return
	}
	switch {
	case release.IsWaiting(err):
		how.Result = status.ResultHeld
	case err != nil:
		how.Result = status.ResultFailed
	case how.Back:
		how.Result = status.ResultRolledBack
	default:
		how.Result = status.ResultApplied
	}
	how.Took = time.Since(a.began)
	if err == nil && !a.acted.IsZero() {
		how.Up = a.up.Sub(a.acted)
	}
	a.Meter.Restarted(how)
}

// Quorum observes the control plane of the node's cluster.
type Quorum interface {
	// Observe queries all members. files are the pod manifests of this node.
	Observe(ctx context.Context, files []node.PodFile) fleet.Observation
}

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
	// TagMoved: a tag does not name the digest of the step.
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

// Apply applies a step, unless against is a reason not to. Apply deletes the approval, so that a failed apply is not
// retried without a new one. The approval stays if the restart was interrupted or could not be observed.
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
		err := a.prepare(ctx, a.enterFleet)
		if err == nil {
			err = a.begins()
		}
		if err == nil {
			err = a.Remove(ctx, a.step)
		}
		return err
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
	if err == nil {
		err = a.prepare(ctx, a.enterFleet)
	}
	if err == nil {
		err = a.begins()
	}
	if err == nil {
		err = a.noteBegun(ctx)
	}
	if err == nil {
		err = a.act(ctx, a.step)
	}
	if err != nil {
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

// enterFleet makes sure that the fleet can spare a pod: the other members of the control plane are healthy, and the
// node holds the lock. They are checked again under the lock: another node may have held it meanwhile.
func (a *attempt) enterFleet(ctx context.Context) error {
	isMember := follow.IsControlPlane(a.step.Apply.Role)
	if err := a.checkQuorum(ctx, isMember); err != nil {
		return err
	}
	if !a.Policy.Lock.Covers(isMember) {
		return nil
	}
	if err := a.Lock.Take(ctx, a.step.File, a.showLock); err != nil {
		return err
	}
	return a.checkQuorum(ctx, isMember)
}

// showLock shows the lock in the status before the cycle ends.
func (a *attempt) showLock() {
	a.Progress.Report(status.Progress{
		Reference: a.step.Apply.Pod, Phase: status.PhaseLocking, PodManifest: a.step.File,
		Lock: a.Records.Record.LockStatus(a.Policy.Lock),
	})
}

// checkQuorum returns a hold if another member of the control plane is not healthy.
func (a *attempt) checkQuorum(ctx context.Context, isMember bool) error {
	if !isMember || a.Quorum == nil {
		return nil
	}
	files, err := a.Files.PodManifests(ctx)
	if err != nil {
		return fmt.Errorf("pod manifests: %w", err)
	}
	stop := a.Progress.Heartbeat()
	seen := a.Quorum.Observe(ctx, files)
	stop()
	if against := fleet.Against(seen, a.step.Apply.Role == manifests.RoleAPIServer); against != "" {
		return &release.HoldError{Hold: status.HoldQuorum, Err: errors.New(against)}
	}
	return nil
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

// BeginSet makes sure that all pods of a set can be restarted, before the first restart: kubelet will start the staged
// releases, the fleet can spare the pods, and the caller is there. It records their previous releases. steps are the
// applies of all pods of the set.
func (x *Executor) BeginSet(ctx context.Context, set string, steps []plan.Step) error {
	for _, check := range []func(*attempt, context.Context) error{(*attempt).preflight, (*attempt).enterFleet} {
		for _, s := range steps {
			a := x.newAttempt(s)
			switch err := a.prepare(ctx, func(ctx context.Context) error { return check(a, ctx) }); {
			case errors.Is(err, errCanceled):
				return err
			case err != nil: // it stops the other pods of its set
				return fmt.Errorf("%s: %w", s.File, err)
			}
		}
	}
	for _, s := range steps {
		if err := x.newAttempt(s).begins(); err != nil {
			return err
		}
	}
	rec := &x.Records.Record
	begun := plan.NewBegunSet(steps, *rec)
	begun.At, begun.By = x.Now().UTC(), x.newAttempt(steps[0]).approver()
	rec.Sets.Set(set, begun)
	if err := x.Records.Save(ctx); err != nil {
		rec.Sets.Delete(set)
		return &release.HoldError{Hold: status.HoldSet, Err: err}
	}
	return nil
}

// approver returns who approved the step.
func (a *attempt) approver() status.Actor {
	rec := &a.Records.Record
	switch approval, ok := rec.Approved[a.step.File]; {
	case a.step.Apply.Auto:
		return status.Actor{Kind: status.ByAuto}
	case ok && approval.By.Kind != "":
		return approval.By
	case rec.Sets[rec.SetOf(a.step.File)].By.Kind != "": // a pod of its set was applied before
		return rec.Sets[rec.SetOf(a.step.File)].By
	default:
		return status.Actor{Kind: status.ByPerson} // an agent without the field recorded the approval
	}
}

// noteEnd adds the end of an apply or a health check to the history, for each container that does not run its last
// known good release. In a failed step, the containers that ran before may have become healthy. It is called before the
// record changes.
func (a *attempt) noteEnd(result status.Result, by status.Actor, cause error) {
	rec := &a.Records.Record
	var entries []status.HistoryEntry
	for _, e := range a.step.Apply.Expect {
		good := rec.Good[record.GoodKey(a.step.File, e.Container)]
		if rec.IsGood(good, e.Ref.Repository, e.Digest, e.Config) {
			continue
		}
		entry := a.historyEntry(e, result, by, cause)
		if release.IsDown(cause) && !a.worse && !slices.Contains(a.step.Apply.Broken, e.Container) {
			entry = a.historyEntry(e, status.ResultApplied, by, nil)
		}
		if good.Running != "" {
			entry.From = rec.NameOf(good.Repository, good.Running)
			entry.Reason = a.withContradiction(entry.Reason, e, good)
		}
		entries = append(entries, entry)
	}
	if len(entries) == 0 {
		entries = append(entries, a.historyEntry(plan.Expectation{}, result, by, cause))
	}
	rec.History.Add(entries)
}

// withContradiction adds to a reason that name and time of a release contradict those of the previous one.
func (a *attempt) withContradiction(reason string, e plan.Expectation, good record.Good) string {
	rec := &a.Records.Record
	text := policy.Contradiction(
		rec.Releases[release.Key(good.Repository, good.Running)], rec.Releases[release.Key(e.Ref.Repository, e.Digest)],
		a.Policy.RuleFor(e.Ref.Repository).Scheme, a.Now(),
	)
	if reason != "" && text != "" {
		reason += "; "
	}
	return reason + text
}

// noteRollback adds the end of a rollback to the history, for each container that it changes.
func (a *attempt) noteRollback(o record.Override, err error) {
	result, by, cause := status.ResultRolledBack, o.By, err
	switch {
	case err != nil:
		result = status.ResultFailed
	case o.Set != "":
		cause = &release.HoldError{Hold: status.HoldSet, Err: errors.New(o.Reason)}
	case !o.ByHand:
		cause = &release.UnhealthyError{Reason: o.Reason}
	}
	if !o.ByHand {
		by = status.Actor{Kind: status.ByAgent}
	} else if by.Kind == "" {
		by = status.Actor{Kind: status.ByPerson}
	}
	var entries []status.HistoryEntry
	for _, e := range a.step.Apply.Expect {
		if from := o.Images[e.Place()].Replaces; from != "" {
			entry := a.historyEntry(e, result, by, cause)
			entry.From, entry.Change = from, status.ChangeRollback
			entries = append(entries, entry)
		}
	}
	if len(entries) == 0 { // an agent without the field recorded the override
		entry := a.historyEntry(plan.Expectation{}, result, by, cause)
		entry.Change = status.ChangeRollback
		entries = append(entries, entry)
	}
	a.Records.Record.History.Add(entries)
}

func (a *attempt) historyEntry(
	e plan.Expectation, result status.Result, by status.Actor, cause error,
) status.HistoryEntry {
	entry := status.HistoryEntry{
		At: a.Now().UTC(), PodManifest: a.step.File, Change: a.step.Apply.Change, Container: e.Container,
		Image: e.Ref.Repository, To: cmp.Or(e.Name, e.Digest.String()), Digest: e.Digest, Result: result, By: by,
		Severity: e.Brings.Severity, Fixes: e.Brings.Fixes,
	}
	if cause != nil {
		entry.Cause, entry.Reason = status.ErrorKindOf(cause), cause.Error()
	}
	return entry
}
