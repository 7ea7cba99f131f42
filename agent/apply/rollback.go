// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// failed records that a pod did not come up, denies its releases, and records the pending rollback if there is a
// rollback target. by is who started it.
func (a *attempt) failed(ctx context.Context, by status.Actor, cause error) Result {
	s, rec := a.step, &a.Records.Record
	a.Log.Warn("pod did not become healthy", "file", s.File, "err", cause)
	now, err := a.currentManifest(ctx)
	if err != nil {
		return a.ended(errors.Join(err, a.Records.Save(ctx)))
	}
	target, against := s.Apply.Rollback, s.Apply.NoRollback
	if broken := s.Apply.Broken; len(broken) > 0 && !a.worse {
		target, against = nil, broken[0]+" was not running before either"
	}
	if target == nil && against != "" {
		cause = fmt.Errorf("%w; not rolled back: %s", cause, against)
	}
	rec.Failed.Set(s.File, record.Failure{
		At: a.Now().UTC(), Offer: s.Apply.Offer, Running: s.Apply.Runs(), Reason: cause.Error(),
	})
	a.noteEnd(status.ResultFailed, by, cause)
	if !a.worse {
		rec.NoteHealthy(s.File, s.Healthy(s.Apply.Broken...), false, a.Policy.Prune.Keep)
	}
	if target == nil {
		return a.ended(errors.Join(cause, a.Records.Save(ctx)))
	}
	o := *target
	o.From, o.Broken = digest.FromBytes(now), s.Apply.Broken
	names, replaced := a.deny(o, cause)
	o.Reason = "rolled back from " + strings.Join(names, ", ") + ": " + cause.Error()
	rec.Overrides.Set(s.File, o.Replacing(replaced))
	err = a.Records.Save(ctx)
	a.result.RollBack = err == nil
	return a.ended(errors.Join(cause, err))
}

// currentManifest returns the pod manifest that the step wrote; ErrConflict if it was edited since, and a hold if
// another file defines its pod: then the release did not cause the failure.
func (a *attempt) currentManifest(ctx context.Context) ([]byte, error) {
	files, err := a.Files.PodManifests(ctx)
	if err != nil {
		return nil, fmt.Errorf("pod manifests: %w", err)
	}
	wrote := a.step.Data
	if wrote == nil {
		wrote = a.step.Was.Data
	}
	file := a.step.File
	now := node.Find(files, file)
	if now == nil || string(now.Content()) != string(wrote) &&
		string(now.Content()) != a.Records.Record.Overrides[file].Data {
		return nil, fmt.Errorf("%s: %w during the health check", file, release.ErrConflict)
	}
	return now.Content(), a.checkAlone(ctx, file, now.Content())
}

// deny denies the releases that the rollback to o replaces. It returns their names for the status, and their digests by
// place.
func (a *attempt) deny(o record.Override, cause error) (names []string, replaced map[string]string) {
	rec := &a.Records.Record
	replaced = map[string]string{}
	for _, e := range a.step.Apply.Expect {
		if at, ok := o.Images[e.Place()]; ok && at.Digest != e.Digest {
			key := release.Key(e.Ref.Repository, e.Digest)
			a.result.FailedReleases = append(a.result.FailedReleases, key)
			rec.Denied.Set(key, record.Denial{
				At: a.Now().UTC(), Name: e.Name, Created: rec.Releases[key].Created,
				PodManifest: a.step.File, Reason: cause.Error(),
			})
			names = append(names, e.Container+" "+e.Name)
			replaced[e.Place()] = cmp.Or(e.Name, e.Digest.String())
		}
	}
	return names, replaced
}

// RollBack makes a pod run the digests of its override, and runs the health check. A rollback that is not possible now
// stays pending, unless its digests no longer exist. A person's request that could not begin is over.
func (x *Executor) RollBack(ctx context.Context, s plan.Step) Result {
	a, rec := x.newAttempt(s), &x.Records.Record
	o := rec.Overrides[s.File]
	if o.Data != string(s.Data) { // it ended with the request for another pod of its set
		return a.ended(&release.HoldError{Hold: status.HoldSet, Err: errors.New("another pod of its set is not rolled back")})
	}
	err := a.prepareRollback(ctx, o)
	switch {
	case errors.Is(err, errCanceled):
		return a.canceled()
	case err != nil && o.Request != nil && ctx.Err() == nil:
		return a.endRequest(ctx, err)
	case err != nil && !errors.Is(err, release.ErrNotFound):
		return a.ended(err)
	}
	request := o.Request
	if err == nil && request != nil { // saved before the pod is touched
		rec.BeginRollback(s.File)
		o = rec.Overrides[s.File]
		if err = x.Records.Save(ctx); err != nil {
			return a.ended(err)
		}
	}
	if err == nil && s.Apply.Aside {
		err = a.act(ctx, s)
	}
	if err == nil {
		err = a.awaitHealthy(ctx)
	}
	a.count(ctx, Measured{Back: true, ByHand: o.ByHand}, err)
	pending := true
	switch {
	case err != nil && ctx.Err() != nil, release.IsUnobserved(err):
		return a.ended(err) // the next cycle continues
	case errors.Is(err, release.ErrConflict), errors.Is(err, release.ErrNotFound):
		rec.Overrides.Delete(s.File)
		pending = false
		if request != nil { // the pod is as before
			maps.DeleteFunc(rec.Denied, func(key string, d record.Denial) bool { return d == request.Denies[key] })
		}
	case err == nil || release.IsDown(err):
		o.Pending, pending = false, false
		rec.Overrides.Set(s.File, o)
	}
	if !pending {
		a.noteRollback(o, err)
	}
	if err == nil {
		a.noteHealthyAgain(o)
	}
	return a.ended(errors.Join(a.finishRollback(o, err), x.Records.Save(ctx)))
}

// prepareRollback gets all that a rollback needs before the pod is touched.
func (a *attempt) prepareRollback(ctx context.Context, o record.Override) error {
	err := a.prepare(ctx, func(ctx context.Context) error { return a.Provide(ctx, o) })
	if err == nil && a.step.Apply.Aside && (o.ByHand || o.Set != "") { // otherwise the pod is down, and needs no lock
		err = a.prepare(ctx, a.enterFleet)
	}
	if err != nil {
		return err
	}
	return a.begins()
}

// noteHealthyAgain records the healthy releases of an override as the last known good ones.
func (a *attempt) noteHealthyAgain(o record.Override) {
	s, rec := a.step, &a.Records.Record
	before := maps.Clone(rec.Good)
	rec.NoteHealthy(s.File, s.Healthy(), false, a.Policy.Prune.Keep)
	if o.Set == "" {
		return
	}
	for _, p := range s.Healthy() { // the release did not fail, but without its set it is not a rollback target
		was := before[record.GoodKey(s.File, p.Container)]
		rec.DropTarget(s.File, p.Container, release.Pin{Repository: was.Repository, Digest: was.Running})
	}
}

// endRequest ends a person's rollback that could not begin. It only waited: the node is as before.
func (a *attempt) endRequest(ctx context.Context, err error) Result {
	a.Log.Info("requested rollback did not begin", "file", a.step.File, "reason", err)
	a.Records.Record.EndRequest(a.step.File)
	if !release.IsWaiting(err) {
		err = fmt.Errorf("%w: nothing was changed: %w", release.ErrHeld, err)
	}
	return a.ended(errors.Join(err, a.Records.Save(ctx)))
}

// finishRollback records the end of a rollback. If its digests no longer exist the pod stays as it is.
func (a *attempt) finishRollback(o record.Override, err error) error {
	s, failed := a.step, &a.Records.Record.Failed
	f := (*failed)[s.File]
	switch {
	case err == nil && f.Running != "":
		failed.Delete(s.File)
	case errors.Is(err, release.ErrNotFound):
		f.At, f.Reason = a.Now().UTC(), o.Reason+"; "+err.Error()
		failed.Set(s.File, f)
	case err != nil && !release.IsWaiting(err):
		err = fmt.Errorf("%s does not become healthy either: %w", o.Releases(), err)
		failed.Set(s.File, record.Failure{
			At: a.Now().UTC(), Offer: s.Apply.Offer, Running: s.Apply.Runs(), Reason: o.Reason + "; " + err.Error(),
		})
	}
	return err
}

// Provide makes CRI list all images of an override. It fetches those that the node has lost.
func (x *Executor) Provide(ctx context.Context, o record.Override) error {
	for _, place := range slices.Sorted(maps.Keys(o.Images)) {
		img := o.Images[place]
		name := release.Key(img.Repository, img.Digest)
		err := x.Images.Name(ctx, img.Pin)
		if errors.Is(err, release.ErrNotFound) { // lost, for example with a containerd that ignores pins
			rel, known := x.Records.Record.Releases[name]
			if !known {
				rel = release.Release{Repository: img.Repository, Tag: img.Follow, Digest: img.Digest}
			}
			if err = x.Stager.Stage(ctx, rel); err == nil {
				err = x.Images.Name(ctx, img.Pin)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if _, err := x.Stager.AwaitListed(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
