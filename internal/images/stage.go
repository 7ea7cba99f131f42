// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// errStaging: the same release is being staged by another goroutine.
var errStaging = errors.New("is being staged already")

// Stage makes a release ready: its content complete for the node's platform,
// unpacked, named and pinned. What is there is not fetched again; where all is
// there, under whatever name, the registry is not asked at all. Progress is
// called from one goroutine at a time, a few times a second at most, and never
// after Stage has returned.
//
// The error is release.ErrPlatform for an image of another platform, which no
// layer is fetched of, and release.ErrNotFound where the registry has no such
// digest any more.
func (s *Store) Stage(ctx context.Context, r release.Release, t node.StageOptions) error {
	if err := checkRelease(r); err != nil {
		return fmt.Errorf("stage: %w", err)
	}
	j := newJob(r, t)
	if !s.claim(j.ref) {
		return fmt.Errorf("stage: %s: %w", j.ref, errStaging)
	}
	defer s.release(j.ref)
	c, err := s.open(ctx)
	if err != nil {
		return s.placed(err)
	}
	if err := s.run(ctx, c, j); err != nil {
		return s.placed(fmt.Errorf("%s: %w", j.ref, err))
	}
	return nil
}

func (s *Store) claim(ref string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.staging[ref] {
		return false
	}
	s.staging[ref] = true
	return true
}

func (s *Store) release(ref string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.staging, ref)
}

// checkRelease guards what becomes a record's name.
func checkRelease(r release.Release) error {
	if err := r.Digest.Validate(); err != nil {
		return fmt.Errorf("%s: digest %q: %w", r.Repository, r.Digest, err)
	}
	name, err := release.NormalizeRepository(r.Repository)
	if err != nil {
		return err
	}
	if name != r.Repository {
		return fmt.Errorf("repository %q: not normalised, want %q", r.Repository, name)
	}
	if r.Long == "" {
		return nil
	}
	named, err := release.ParseReference(r.Repository + ":" + r.Long)
	if err == nil && named.Tag != r.Long {
		err = fmt.Errorf("tag %q: not a tag", r.Long)
	}
	return err
}

func digestName(r release.Release) string { return r.Repository + "@" + r.Digest.String() }

// stage brings what is not there, and names it.
func (c *session) stage(ctx context.Context, j *job) error {
	target, ok, err := c.find(ctx, j.release)
	if err != nil {
		return err
	}
	if !ok {
		if target, err = c.pull(ctx, j); err != nil {
			return err
		}
	}
	if err := c.name(ctx, j.release, target); err != nil {
		return err
	}
	size, err := c.size(ctx, target)
	if err == nil {
		j.tell(status.Progress{Reference: j.release.StagedName(), Phase: "done", Done: size, Total: size})
	}
	return err
}

// find looks for the release under any name, complete: the pin of an earlier
// staging, or what kubelet has pulled by itself.
func (c *session) find(ctx context.Context, r release.Release) (ocispec.Descriptor, bool, error) {
	records, err := c.client.ImageService().List(ctx, "target.digest=="+r.Digest.String())
	if err != nil {
		return ocispec.Descriptor{}, false, fmt.Errorf("list images: %w", err)
	}
	if len(records) == 0 {
		return ocispec.Descriptor{}, false, nil
	}
	target := records[0].Target
	ok, err := c.complete(ctx, target)
	return target, ok, err
}

// name writes the records that are not there yet, the pin last, and believes
// nothing: what is called staged has been seen complete with its pin in place.
func (c *session) name(ctx context.Context, r release.Release, target ocispec.Descriptor) error {
	named := images.Image{Name: r.StagedName(), Target: target, Labels: stagedLabels(r)}
	if err := c.record(ctx, named); err != nil {
		return err
	}
	// The first record holds the content. Whoever is killed before the pin stages
	// again and comes by here; after it, nobody would look for the lease.
	if err := c.dropLeases(ctx, digestName(r)); err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	if err := c.record(ctx, pinRecord(r.Repository, images.Image{Target: target})); err != nil {
		return err
	}
	ok, err := c.complete(ctx, target)
	if err == nil && !ok {
		err = errors.New("incomplete after the pull")
	}
	return err
}

// record writes a record that is not there yet. One that is there is looked at
// before it is written over: what CRI has pulled under that name, be it a moment
// ago, is CRI's.
func (c *session) record(ctx context.Context, want images.Image) error {
	service := c.client.ImageService()
	_, err := service.Create(ctx, want)
	if errdefs.IsAlreadyExists(err) {
		there, unread := service.Get(ctx, want.Name)
		if unread == nil && covers(there, want) {
			return nil
		}
		_, err = service.Update(ctx, want)
	}
	if err != nil {
		return fmt.Errorf("record %s: %w", want.Name, err)
	}
	return nil
}

// stagedLabels are those of the record under the release's name.
func stagedLabels(r release.Release) map[string]string {
	return map[string]string{labelManaged: managed, labelStaged: r.Repository}
}

// covers reports whether a record needs no writing: the same target, and at
// least our labels. What somebody else pulled under that name does not become
// ours by being right.
func covers(there, want images.Image) bool {
	for key, value := range want.Labels {
		if key != labelStaged && there.Labels[key] != value {
			return false
		}
	}
	return there.Target.Digest == want.Target.Digest
}

func sameRecord(a, b images.Image) bool {
	return a.Target.Digest == b.Target.Digest && maps.Equal(a.Labels, b.Labels)
}

// remember keeps how the records are that staging may write, for undo. A second
// attempt finds what the first one wrote: that is not how they were.
func (c *session) remember(ctx context.Context, j *job) error {
	if j.before != nil {
		return nil
	}
	before := map[string]*images.Image{}
	for _, name := range []string{j.release.StagedName(), pinName(j.release.Repository, j.release.Digest)} {
		record, err := c.client.ImageService().Get(ctx, name)
		switch {
		case err == nil:
			before[name] = &record
		case errdefs.IsNotFound(err):
			before[name] = nil
		default:
			return fmt.Errorf("record %s: %w", name, err)
		}
	}
	j.before = before
	return nil
}

// undo puts the records back.
func (c *session) undo(ctx context.Context, j *job) {
	for name, was := range j.before {
		if err := c.restore(ctx, name, was); err != nil && !errdefs.IsNotFound(err) {
			c.log.Warn("containerd: image record not put back", "name", name, "error", err)
		}
	}
}

func (c *session) restore(ctx context.Context, name string, was *images.Image) error {
	is, err := c.client.ImageService().Get(ctx, name)
	switch {
	case err != nil && (was == nil || !errdefs.IsNotFound(err)):
		return err
	case was == nil:
		return c.client.ImageService().Delete(ctx, name)
	case err == nil && sameRecord(is, *was):
		return nil
	}
	return c.put(ctx, *was)
}
