// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// errStaging: another goroutine is staging the same release.
var errStaging = errors.New("is already being staged")

// Stage makes a release ready: complete for the node's platform, unpacked, named and pinned. It fetches only missing
// content, and asks no registry if nothing is missing. Stage calls Progress from one goroutine at a time, a few times a
// second at most, and never after it has returned.
//
// It returns release.ErrPlatform for an image of another platform, before any layer is fetched, and release.ErrNotFound
// if the registry does not have the digest.
func (s *Store) Stage(ctx context.Context, r release.Release, o node.StageOptions) error {
	if err := checkRelease(r); err != nil {
		return fmt.Errorf("stage: %w", err)
	}
	j := newJob(r, o)
	if !s.claim(j.ref) {
		return fmt.Errorf("stage: %s: %w", j.ref, errStaging)
	}
	defer s.release(j.ref)
	c, err := s.open(ctx)
	if err != nil {
		return s.wrapError(err)
	}
	if err := s.run(ctx, c, j); err != nil {
		return s.wrapError(fmt.Errorf("%s: %w", j.ref, err))
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

// checkRelease checks the parts of a record's name.
func checkRelease(r release.Release) error {
	if err := r.Digest.Validate(); err != nil {
		return fmt.Errorf("%s: digest %q: %w", r.Repository, r.Digest, err)
	}
	name, err := release.NormalizeRepository(r.Repository)
	if err != nil {
		return err
	}
	if name != r.Repository {
		return fmt.Errorf("repository %q: not normalized, want %q", r.Repository, name)
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

// stage fetches missing content and writes the records.
func (c *session) stage(ctx context.Context, j *job) error {
	target, ok, err := c.find(ctx, j.release)
	if err != nil {
		return err
	}
	if !ok {
		target, err = c.pull(ctx, j)
		if err != nil && c.repair(ctx, j.release, err) {
			target, err = c.pull(ctx, j)
		}
		if err != nil {
			return err
		}
	}
	if err := c.name(ctx, j.release, target); err != nil {
		return err
	}
	size, err := c.imageSize(ctx, target)
	if err == nil {
		j.report(status.Progress{Reference: j.release.StagedName(), Phase: status.PhaseDone, Done: size, Total: size})
	}
	return err
}

// find returns the complete release under any name: the pin of an earlier staging, or an image pulled by kubelet.
func (c *session) find(ctx context.Context, r release.Release) (ocispec.Descriptor, bool, error) {
	records, err := c.client.ImageService().List(ctx, "target.digest=="+r.Digest.String())
	if err != nil {
		return ocispec.Descriptor{}, false, fmt.Errorf("list images: %w", err)
	}
	if len(records) == 0 {
		return ocispec.Descriptor{}, false, nil
	}
	target := records[0].Target
	ok, err := c.isComplete(ctx, target)
	return target, ok, err
}

// name writes the missing records, the pin last, and checks the image once more with its
// pin in place.
func (c *session) name(ctx context.Context, r release.Release, target ocispec.Descriptor) error {
	named := images.Image{Name: r.StagedName(), Target: target, Labels: stagedLabels(r)}
	isNewName, err := c.ensureRecord(ctx, named)
	if err != nil {
		return err
	}
	// The first record protects the content. The lease is deleted before the pin is written: if the agent is killed in
	// between, it stages again and deletes it then.
	if err := c.deleteLeases(ctx, digestName(r)); err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	pin := pinRecord(r.Repository, images.Image{Target: target})
	isNewPin, err := c.ensureRecord(ctx, pin)
	if err != nil {
		return err
	}
	// Containerd may have collected some of it before the first record protected it. An older record stays: what it still
	// protects may be the running image, or the one for a rollback.
	ok, err := c.isComplete(ctx, target)
	if err != nil || ok {
		return err
	}
	if isNewPin {
		c.removeName(ctx, pin.Name)
	}
	if isNewName {
		c.removeName(ctx, named.Name)
	}
	return errors.New("incomplete after it was named")
}

// ensureRecord writes a record unless the existing one has the same target and at least the agent's labels. labelStaged
// may be missing: then CRI has pulled that name, and the record stays CRI's. isNew: there was none of that name.
func (c *session) ensureRecord(ctx context.Context, want images.Image) (isNew bool, err error) {
	service := c.client.ImageService()
	_, err = service.Create(ctx, want)
	isNew = err == nil
	if errdefs.IsAlreadyExists(err) {
		existing, unread := service.Get(ctx, want.Name)
		if unread == nil && covers(existing, want) {
			return false, nil
		}
		_, err = service.Update(ctx, want)
	}
	if err != nil {
		return false, fmt.Errorf("record %s: %w", want.Name, err)
	}
	return isNew, nil
}

// stagedLabels returns the labels of the record under the release's name.
func stagedLabels(r release.Release) map[string]string {
	return map[string]string{labelManaged: managed, labelStaged: r.Repository}
}

func covers(existing, want images.Image) bool {
	for key, value := range want.Labels {
		if key != labelStaged && existing.Labels[key] != value {
			return false
		}
	}
	return existing.Target.Digest == want.Target.Digest
}

// Name gives a complete digest the name repository@digest. CRI then finds an image that a pod manifest names as
// repository:tag@digest, with any tag, without a registry. CRI learns of the name from an event, a moment after Name
// has returned.
//
// It returns release.ErrNotFound if the digest is not complete for the node's platform: a container would not start
// from it. The record is pruned like those of staging, unless a CRI pull has overwritten it.
func (s *Store) Name(ctx context.Context, p release.Pin) error {
	r := release.Release{Repository: p.Repository, Digest: p.Digest}
	if err := checkRelease(r); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	return s.with(ctx, func(ctx context.Context, c *session) error {
		if err := c.nameDigest(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", digestName(r), err)
		}
		return nil
	})
}

func (c *session) nameDigest(ctx context.Context, r release.Release) error {
	target, ok, err := c.find(ctx, r)
	if err != nil {
		return err
	}
	if !ok {
		return c.incomplete()
	}
	named := images.Image{Name: digestName(r), Target: target, Labels: stagedLabels(r)}
	if _, err = c.ensureRecord(ctx, named); err != nil {
		return err
	}
	// From here on the name protects the content, but containerd may have collected
	// some of it just before.
	if ok, err = c.isComplete(ctx, target); err == nil && !ok {
		c.removeName(ctx, named.Name)
		err = c.incomplete()
	}
	return err
}

func (c *session) incomplete() error {
	return fmt.Errorf("%w: not complete for %s", release.ErrNotFound, platforms.Format(c.platform))
}

// removeName removes a record if it is the agent's.
func (c *session) removeName(ctx context.Context, name string) {
	ctx, cancel := cleanup(ctx)
	defer cancel()
	record, err := c.client.ImageService().Get(ctx, name)
	_, isStaged := stagedOf(record)
	if _, isPin := pinOf(record); err == nil && (isStaged || isPin) {
		err = c.client.ImageService().Delete(ctx, name, images.DeleteTarget(&record.Target))
	}
	if err != nil {
		c.log.Warn("cannot remove the image record from containerd", "name", name, "error", err)
	}
}

// notImage returns the media type of a target that is neither manifest nor index; empty if it is one. CRI's pull writes
// the record of the tag before it checks the content, so a login page stays there, on all versions.
func notImage(target ocispec.Descriptor) string {
	kind := target.MediaType
	if images.IsManifestType(kind) || images.IsIndexType(kind) || kind == images.MediaTypeDockerSchema1Manifest {
		return ""
	}
	if kind == "" {
		return "no media type"
	}
	return outside.Text(kind)
}

// Restore points a broken record at a complete digest. Its labels stay. CRI learns of it from an event, a moment after
// Restore has returned.
//
// It returns release.ErrConflict if the record has changed since was, and release.ErrNotFound if the digest is not
// complete for the node's platform.
func (s *Store) Restore(ctx context.Context, was node.HeldImage, d digest.Digest) error {
	return s.with(ctx, func(ctx context.Context, c *session) error {
		if err := c.restore(ctx, was, d); err != nil {
			return fmt.Errorf("%s: %w", was.Name, err)
		}
		return nil
	})
}

func (c *session) restore(ctx context.Context, was node.HeldImage, d digest.Digest) error {
	target, ok, err := c.find(ctx, release.Release{Digest: d})
	if err != nil {
		return err
	}
	if !ok {
		return c.incomplete()
	}
	record, err := c.client.ImageService().Get(ctx, was.Name)
	switch {
	case errdefs.IsNotFound(err), err == nil && (record.Target.Digest != was.Digest || notImage(record.Target) == ""):
		return release.ErrConflict
	case err != nil:
		return err
	}
	record.Target = target
	_, err = c.client.ImageService().Update(ctx, record, "target")
	return err
}
