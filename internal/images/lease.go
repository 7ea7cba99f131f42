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

	"github.com/kubic-project/image-update-agent/agent"
)

const (
	// leaseLife is containerd's own default for a pull. A lease that lives
	// longer than its agent keeps partly fetched layers that long.
	leaseLife = 24 * time.Hour
	// cleanupTime bounds the work that is done after the caller has given up.
	cleanupTime = 30 * time.Second
)

// cleanup is a context for what must be done even though ctx has ended.
func cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
}

// lease protects what a pull brings until it has a name. end deletes it, and
// with it the leases of earlier attempts at the same release, which a killed
// agent or a containerd that was away left behind. They go at the end because
// until then they keep the bytes that this attempt resumes from.
func (c *session) lease(ctx context.Context, ref string) (_ context.Context, end func(error), err error) {
	leased, _, err := c.client.WithLease(ctx,
		leases.WithRandomID(), leases.WithExpiration(leaseLife), leases.WithLabel(labelStage, ref))
	if err != nil {
		return nil, nil, fmt.Errorf("lease: %w", err)
	}
	return leased, func(err error) {
		ctx, cancel := cleanup(ctx)
		defer cancel()
		var opts []leases.DeleteOpt
		if errors.Is(err, agent.ErrNoSpace) {
			// Whoever hears of a full disk shall find it as it was.
			opts = append(opts, leases.SynchronousDelete)
		}
		if err := c.dropLeases(ctx, ref, opts...); err != nil {
			c.log.Warn("containerd: lease not deleted, it will expire", "release", ref, "error", err)
		}
	}, nil
}

// dropLeases deletes the leases of a release. What nothing else points to goes
// with them: blobs, parts of blobs, snapshots.
func (c *session) dropLeases(ctx context.Context, ref string, opts ...leases.DeleteOpt) error {
	service := c.client.LeasesService()
	ours, err := service.List(ctx, "labels."+strconv.Quote(labelStage)+"=="+strconv.Quote(ref))
	if err != nil {
		return err
	}
	var errs []error
	for _, lease := range ours {
		if err := service.Delete(ctx, lease, opts...); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("%s: %w", lease.ID, err))
		}
	}
	return errors.Join(errs...)
}
