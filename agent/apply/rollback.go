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

// failed records that a pod did not come up, denies the releases that it ran, and records the
// pending rollback if there is a rollback target. by is who started it.
func (r *restart) failed(ctx context.Context, by status.Actor, cause error) RestartResult {
	s, rec := r.step, &r.Records.Record
	r.Log.Warn("pod did not come up", "file", s.File, "err", cause)
	now, err := r.currentManifest(ctx)
	if err != nil {
		return r.ended(errors.Join(err, r.Records.Save(ctx)))
	}
	target := s.Apply.Rollback
	if target == nil && s.Apply.NoRollback != "" {
		cause = fmt.Errorf("%w; it stays as it is: %s", cause, s.Apply.NoRollback)
	}
	rec.Failed.Set(s.File, record.Failure{
		At: r.Now().UTC(), Offer: s.Apply.Offer, Running: s.Apply.Runs(), Reason: cause.Error(),
	})
	historian{r}.note(status.ResultFailed, by, cause)
	if target == nil {
		return r.ended(errors.Join(cause, r.Records.Save(ctx)))
	}
	o := *target
	o.From = digest.FromBytes(now)
	names, replaced := r.deny(o, cause)
	o.Reason = "rolled back from " + strings.Join(names, ", ") + ": " + cause.Error()
	rec.Overrides.Set(s.File, o.Replacing(replaced))
	err = r.Records.Save(ctx)
	r.result.RollBack = err == nil
	return r.ended(errors.Join(cause, err))
}

// currentManifest is the pod manifest that the step left; ErrConflict where it was edited
// since.
func (r *restart) currentManifest(ctx context.Context) ([]byte, error) {
	files, err := r.Files.PodManifests(ctx)
	if err != nil {
		return nil, fmt.Errorf("pod manifests: %w", err)
	}
	wrote := r.step.Data
	if wrote == nil {
		wrote = r.step.Was.Data
	}
	file := r.step.File
	now := node.Find(files, file)
	if now == nil || string(now.Data) != string(wrote) && string(now.Data) != r.Records.Record.Overrides[file].Data {
		return nil, fmt.Errorf("%s: %w while it was proved", file, release.ErrConflict)
	}
	return now.Data, nil
}

// deny denies the releases that the rollback to o replaces. It returns their names for the status, and by place.
func (r *restart) deny(o record.Override, cause error) (names []string, replaced map[string]string) {
	rec := &r.Records.Record
	replaced = map[string]string{}
	for _, e := range r.step.Apply.Expect {
		if at, ok := plan.PinnedFor(o, e); ok && at.Digest != e.Digest {
			key := release.Key(e.Ref.Repository, e.Digest)
			r.result.FailedReleases = append(r.result.FailedReleases, key)
			rec.Denied.Set(key, record.Denial{
				At: r.Now().UTC(), Name: e.Name, Created: rec.Releases[key].Created,
				PodManifest: r.step.File, Reason: cause.Error(),
			})
			names = append(names, e.Container+" "+e.Name)
			replaced[e.Place()] = cmp.Or(e.Name, e.Digest.String())
		}
	}
	return names, replaced
}

// RollBack makes a pod run the digests that its override names, and proves that it does. A
// rollback that cannot be done now stays pending, unless its digests cannot be found any more.
func (r *Restarter) RollBack(ctx context.Context, s plan.Step) RestartResult {
	x, rec := r.begin(s), &r.Records.Record
	o := rec.Overrides[s.File]
	err := x.provide(ctx, o)
	if err != nil && !errors.Is(err, release.ErrNotFound) {
		return x.ended(err)
	}
	if err == nil && s.Apply.Aside && o.ByHand { // else the pod is down, and needs no lock
		err = fleet{x}.enter(ctx)
	}
	if err == nil && s.Apply.Aside {
		err = x.act(ctx, s)
	}
	if err == nil {
		err = x.prove(ctx, nil)
	}
	x.count(ctx, Restart{Back: true, ByHand: o.ByHand}, err)
	pending := true
	switch {
	case err != nil && ctx.Err() != nil, release.IsUnobserved(err):
		return x.ended(err) // the next cycle continues
	case errors.Is(err, release.ErrConflict), errors.Is(err, release.ErrNotFound):
		rec.Overrides.Delete(s.File)
		pending = false
	case err == nil || release.IsDown(err):
		o.Pending, pending = false, false
		rec.Overrides.Set(s.File, o)
	}
	if !pending {
		historian{x}.noteRollback(o, err)
	}
	if err == nil {
		rec.NoteProof(s.File, s.Proved(), false, r.Policy.Prune.Keep)
	}
	return x.ended(errors.Join(x.finishRollback(o, err), r.Records.Save(ctx)))
}

// finishRollback records how a rollback ended. Where its digests cannot be found any more the
// pod stays as it is.
func (r *restart) finishRollback(o record.Override, err error) error {
	s, failed := r.step, &r.Records.Record.Failed
	f := (*failed)[s.File]
	switch {
	case err == nil && f.Running != "":
		failed.Delete(s.File)
	case errors.Is(err, release.ErrNotFound):
		f.At, f.Reason = r.Now().UTC(), o.Reason+"; "+err.Error()
		failed.Set(s.File, f)
	case err != nil && !release.IsWaiting(err):
		err = fmt.Errorf("%s does not come up either: %w", o.Releases(), err)
		failed.Set(s.File, record.Failure{
			At: r.Now().UTC(), Offer: s.Apply.Offer, Running: s.Apply.Runs(), Reason: o.Reason + "; " + err.Error(),
		})
	}
	return err
}

// provide makes sure that CRI lists all images that an override names.
func (r *Restarter) provide(ctx context.Context, o record.Override) error {
	for _, place := range slices.Sorted(maps.Keys(o.Images)) {
		img := o.Images[place]
		name := release.Key(img.Repository, img.Digest)
		err := r.Images.Name(ctx, img.Pin)
		if errors.Is(err, release.ErrNotFound) { // lost, as with a containerd that ignores pins
			rel, known := r.Records.Record.Releases[name]
			if !known {
				rel = release.Release{Repository: img.Repository, Tag: img.Follow, Digest: img.Digest}
			}
			if err = r.Stager.Stage(ctx, rel); err == nil {
				err = r.Images.Name(ctx, img.Pin)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if _, err := r.Stager.AwaitListed(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
