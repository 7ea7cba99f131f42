// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"

	"github.com/kubic-project/image-update-agent/agent/release"
)

const (
	// leaseLife is how long a partial pull is kept for the next attempt. Cycles are 12 h apart by default.
	leaseLife = 24 * time.Hour
	// cleanupTimeout limits the work after the end of the caller's context. containerd needs seconds to delete some
	// gigabytes.
	cleanupTimeout = 30 * time.Second
	// labelExpire is containerd's label of a lease.
	labelExpire = "containerd.io/gc.expire"
)

// cleanup returns a context for work that continues after ctx has ended.
func cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}

// lease protects fetched content until a record names it. It reuses the lease of an earlier attempt, with the bytes to
// resume from, if that does not expire too early, else it creates one. Older leases stay until the end, because they
// also hold bytes.
func (c *session) lease(ctx context.Context, j *job) (context.Context, error) {
	ours, err := c.leasesOf(ctx, j.ref)
	if err != nil {
		return nil, fmt.Errorf("leases: %w", err)
	}
	j.resumes = j.resumes || len(ours) > 0
	for _, l := range ours {
		end, err := time.Parse(time.RFC3339, l.Labels[labelExpire])
		if err == nil && time.Until(end) > c.timeout {
			return leases.WithLease(ctx, l.ID), nil
		}
	}
	l, err := c.client.LeasesService().Create(ctx,
		leases.WithRandomID(), leases.WithExpiration(leaseLife), leases.WithLabel(labelStage, j.ref))
	if err != nil {
		return nil, fmt.Errorf("lease: %w", err)
	}
	return leases.WithLease(ctx, l.ID), nil
}

// leasesOf lists the leases of a release.
func (c *session) leasesOf(ctx context.Context, ref string) ([]leases.Lease, error) {
	return c.client.LeasesService().List(ctx, "labels."+strconv.Quote(labelStage)+"=="+strconv.Quote(ref))
}

// endLeases deletes the leases of a job that ended with err, unless the next attempt can resume from their content.
func (c *session) endLeases(ctx context.Context, j *job, err error) {
	if err != nil && j.keepsLease(err) {
		return
	}
	var opts []leases.DeleteOpt
	if errors.Is(err, release.ErrNoSpace) {
		// The space must be free again when the caller handles the full disk.
		opts = append(opts, leases.SynchronousDelete)
	}
	if err := c.deleteLeases(ctx, j.ref, opts...); err != nil {
		c.log.Warn("cannot delete the lease in containerd, it will expire", "release", j.ref, "error", err)
	}
}

// keepsLease reports whether the next attempt has bytes to resume from.
func (j *job) keepsLease(err error) bool {
	if _, refused := errors.AsType[*spaceError](err); refused {
		return j.resumes
	}
	return isResumable(err) && (j.resumes || j.fetched.Load() > 0)
}

// deleteLeases deletes the leases of a release, with the blobs, partial blobs and snapshots that nothing else refers
// to.
func (c *session) deleteLeases(ctx context.Context, ref string, opts ...leases.DeleteOpt) error {
	ours, err := c.leasesOf(ctx, ref)
	if err != nil {
		return err
	}
	var errs []error
	for _, lease := range ours {
		if err := c.deleteLease(ctx, lease, opts...); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", lease.ID, err))
		}
	}
	return errors.Join(errs...)
}

func (c *session) deleteLease(ctx context.Context, lease leases.Lease, opts ...leases.DeleteOpt) error {
	err := c.client.LeasesService().Delete(ctx, lease, opts...)
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// pruneLeases deletes the agent's leases of releases that are neither wanted nor being staged: no pull would resume
// from their content.
func (c *session) pruneLeases(ctx context.Context, want []release.Pin) error {
	ours, err := c.client.LeasesService().List(ctx, "labels."+strconv.Quote(labelStage))
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	wanted := make(map[string]bool, len(want))
	for _, pin := range want {
		wanted[digestName(release.Release{Repository: pin.Repository, Digest: pin.Digest})] = true
	}
	for _, lease := range ours {
		ref := lease.Labels[labelStage]
		if wanted[ref] || !c.claim(ref) {
			continue
		}
		err := c.deleteLease(ctx, lease)
		c.release(ref)
		if err != nil {
			return fmt.Errorf("lease of %s: %w", ref, err)
		}
	}
	return nil
}
