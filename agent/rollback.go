// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
)

// failed remembers that a pod was seen not to come up, and brings it back to what
// ran well before, if there is something. What it did not come up with is denied
// from then on. All that is kept before the first act: a crash in the middle goes
// on.
func (a *Agent) failed(ctx context.Context, s Step, cause error) error {
	a.Log.Warn("pod did not come up", "cycle", a.cycle, "file", s.File, "err", cause)
	now, err := a.left(ctx, s)
	if err != nil {
		return errors.Join(err, a.save(ctx))
	}
	f := Failure{At: a.Now().UTC(), Offer: s.Apply.Offer, Reason: cause.Error()}
	back := s.Apply.Back
	f.Runs = s.Apply.runs()
	if back == nil && s.Apply.NoBack != "" {
		cause = fmt.Errorf("%w; it stays as it is: %s", cause, s.Apply.NoBack)
		f.Reason = cause.Error()
	}
	a.record.fail(s.File, f)
	if back == nil {
		return errors.Join(cause, a.save(ctx))
	}
	o := *back
	o.From = digest.FromBytes(now)
	o.Reason = "rolled back from " + strings.Join(a.deny(s, o, cause), ", ") + ": " + cause.Error()
	a.record.override(s.File, o)
	if err := a.save(ctx); err != nil {
		return errors.Join(cause, err)
	}
	if err := a.bringBack(ctx, s.File); err != nil {
		// That the way back waits is not the news.
		return fmt.Errorf("%w; roll back: %v", cause, err) //nolint:errorlint // see above
	}
	return fmt.Errorf("%w; rolled back to %s", cause, o.releases())
}

// left is the pod manifest as a step has left it; ErrConflict where somebody has
// written another one since.
func (a *Agent) left(ctx context.Context, s Step) ([]byte, error) {
	files, err := a.Files.PodManifests(ctx)
	if err != nil {
		return nil, fmt.Errorf("pod manifests: %w", err)
	}
	wrote := s.Data
	if wrote == nil {
		wrote = s.Was.Data
	}
	now := find(files, s.File)
	if now == nil || string(now.Data) != string(wrote) && string(now.Data) != a.record.Overrides[s.File].Data {
		return nil, fmt.Errorf("%s: %w while it was proved", s.File, ErrConflict)
	}
	return now.Data, nil
}

// deny keeps what a pod did not come up with, and names it for people.
func (a *Agent) deny(s Step, o Override, cause error) []string {
	var from []string
	for _, e := range s.Apply.Expect {
		if at, ok := o.at(e); ok && at.Digest != e.Digest {
			key := releaseKey(e.Ref.Repository, e.Digest)
			a.fell[key] = true
			a.record.deny(key, Denial{
				At: a.Now().UTC(), Name: e.Name, Created: a.record.Releases[key].Created,
				PodManifest: s.File, Reason: cause.Error(),
			})
			from = append(from, e.Container+" "+e.Name)
		}
	}
	return from
}

// releases are what an override names, for people.
func (o Override) releases() string { return strings.Join(o.tags(), ", ") }

func (o Override) tags() []string {
	var out []string
	for _, place := range slices.Sorted(maps.Keys(o.Images)) {
		out = append(out, o.Images[place].Tag)
	}
	return slices.Compact(out)
}

// rolledBack is what a pod was brought back from; nil: it runs what it follows.
func (r *Record) rolledBack(file string) *RolledBack {
	o, ok := r.Overrides[file]
	if !ok || o.Pending {
		return nil
	}
	back := RolledBack{At: o.At, Reason: o.Reason, ByHand: o.ByHand, Runs: o.tags()}
	for _, key := range slices.Sorted(maps.Keys(r.Denied)) {
		if d := r.Denied[key]; d.PodManifest == file {
			back.Left = append(back.Left, d.Name)
		}
	}
	if len(back.Left) == 0 {
		return nil // it is only for as long as the registry is away
	}
	return &back
}

// reason says why nothing newer is offered, and how to go forward.
func (b RolledBack) reason(file string) string {
	return fmt.Sprintf("%s was rolled back to %s and %s is denied, until apply --retry %s or a newer release",
		file, few(b.Runs), few(b.Left), file)
}

// bringBack rolls a pod back as the node is now: the plan that failed is of the
// node as it was.
func (a *Agent) bringBack(ctx context.Context, file string) error {
	s, err := a.planBack(ctx, file)
	if err != nil {
		return err
	}
	return a.rollBack(ctx, s)
}

// planBack is the step that brings a pod to its override.
func (a *Agent) planBack(ctx context.Context, file string) (Step, error) {
	if err := a.putBack(ctx); err != nil {
		return Step{}, err
	}
	inv, err := a.inventory(ctx)
	if err != nil {
		return Step{}, err
	}
	for _, s := range Decide(inv, nil, a.record, a.Policy, a.Now()).Steps {
		if s.Do == StepRollBack && s.File == file {
			return s, nil
		}
	}
	if inv.Busy != "" {
		return Step{}, fmt.Errorf("%w: %s", ErrHeld, inv.Busy)
	}
	return Step{}, fmt.Errorf("%s: %w", file, ErrConflict)
}

// rollBack makes a pod run the digests that its override names, and proves that it
// does. One that cannot be done now stays to be done, but not one whose digests
// are nowhere any more.
func (a *Agent) rollBack(ctx context.Context, s Step) error {
	o := a.record.Overrides[s.File]
	a.startWatch()
	err := a.provideAll(ctx, o)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if err == nil && s.Apply.Aside {
		err = a.act(ctx, s)
	}
	if err == nil {
		err = a.prove(ctx, s, nil)
	}
	a.countRestart(ctx, Restart{Back: true, ByHand: o.ByHand}, err)
	switch {
	case err != nil && ctx.Err() != nil, isUnseen(err):
		return err // the next start, or the next cycle, goes on
	case errors.Is(err, ErrConflict), errors.Is(err, ErrNotFound):
		delete(a.record.Overrides, s.File)
	case err == nil || isDown(err):
		o.Pending = false
		a.record.override(s.File, o)
	}
	if err == nil {
		a.noteProof(s, false)
	}
	return errors.Join(a.wayBackEnds(s, o, err), a.save(ctx))
}

// wayBackEnds keeps how a rolling back ended. Where the digests are nowhere any more
// the pod goes on running what it has failed with.
func (a *Agent) wayBackEnds(s Step, o Override, err error) error {
	f := a.record.Failed[s.File]
	switch {
	case err == nil && f.Runs != "":
		delete(a.record.Failed, s.File)
	case errors.Is(err, ErrNotFound):
		f.At, f.Reason = a.Now().UTC(), o.Reason+"; "+err.Error()
		a.record.fail(s.File, f)
	case err != nil && !waits(err):
		err = fmt.Errorf("%s does not come up either: %w", o.releases(), err)
		a.record.fail(s.File, Failure{
			At: a.Now().UTC(), Offer: s.Apply.Offer, Runs: s.Apply.runs(), Reason: o.Reason + "; " + err.Error(),
		})
	}
	return err
}

// provideAll makes sure that kubelet finds all that an override names on the node.
func (a *Agent) provideAll(ctx context.Context, o Override) error {
	for _, place := range slices.Sorted(maps.Keys(o.Images)) {
		if err := a.provide(ctx, o.Images[place]); err != nil {
			return err
		}
	}
	return nil
}

// provide makes sure that kubelet finds a digest on the node.
func (a *Agent) provide(ctx context.Context, o Overridden) error {
	name := releaseKey(o.Repository, o.Digest)
	err := a.Images.Name(ctx, o.Pin)
	if errors.Is(err, ErrNotFound) { // lost, as on a containerd that knows no pins
		r, known := a.record.Releases[name]
		if !known {
			r = Release{Repository: o.Repository, Tag: o.Follow, Digest: o.Digest}
		}
		if err = a.stage(ctx, r); err == nil {
			err = a.Images.Name(ctx, o.Pin)
		}
	}
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
