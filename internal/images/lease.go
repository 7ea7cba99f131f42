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
	// leaseLife is how long what a broken pull has brought waits for the next
	// attempt, at most. Intervals of 12 h are the default.
	leaseLife = 24 * time.Hour
	// cleanupTime bounds the work that is done after the caller has given up. To
	// delete some gigabytes takes containerd seconds.
	cleanupTime = 30 * time.Second
	// labelExpire is containerd's, on a lease.
	labelExpire = "containerd.io/gc.expire"
)

// cleanup is a context for what must be done even though ctx has ended.
func cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
}

// lease protects what a pull brings until it has a name: the lease of an
// earlier attempt, with the bytes that this one resumes from, if it lives long
// enough, else a new one. An older one beside it stays until the end, for the
// same reason.
func (c *session) lease(ctx context.Context, j *job) (context.Context, error) {
	ours, err := c.leases(ctx, j.ref)
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

// leases are those of a release.
func (c *session) leases(ctx context.Context, ref string) ([]leases.Lease, error) {
	return c.client.LeasesService().List(ctx, "labels."+strconv.Quote(labelStage)+"=="+strconv.Quote(ref))
}

// endLeases decides, with the error that ended the job, over what it has
// brought: it is named now, or worth to be resumed, or goes.
func (c *session) endLeases(ctx context.Context, j *job, err error) {
	if err != nil && j.keeps(err) {
		return
	}
	var opts []leases.DeleteOpt
	if errors.Is(err, release.ErrNoSpace) {
		// Whoever hears of a full disk shall find it as it was.
		opts = append(opts, leases.SynchronousDelete)
	}
	if err := c.dropLeases(ctx, j.ref, opts...); err != nil {
		c.log.Warn("containerd: lease not deleted, it will expire", "release", j.ref, "error", err)
	}
}

// keeps tells whether the next attempt has something to resume from. Without a
// byte of a layer there is nothing to save; where there was no room, an earlier
// attempt's part stays as it was.
func (j *job) keeps(err error) bool {
	if _, refused := errors.AsType[*noRoomError](err); refused {
		return j.resumes
	}
	return resumable(err) && (j.resumes || j.brought.Load() > 0)
}

// dropLeases deletes the leases of a release. What nothing else points to goes
// with them: blobs, parts of blobs, snapshots.
func (c *session) dropLeases(ctx context.Context, ref string, opts ...leases.DeleteOpt) error {
	ours, err := c.leases(ctx, ref)
	if err != nil {
		return err
	}
	var errs []error
	for _, lease := range ours {
		if err := c.client.LeasesService().Delete(ctx, lease, opts...); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("%s: %w", lease.ID, err))
		}
	}
	return errors.Join(errs...)
}
