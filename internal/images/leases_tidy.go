// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"
	"strconv"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// tidyLeases deletes our leases that nothing will take up again. The lease of a
// staging that broke off keeps the bytes that the next one resumes from; that
// of a release which is not wanted any more only fills the disk. Leases that
// are left out by mistake expire by themselves.
func (c *session) tidyLeases(ctx context.Context, want []release.Pin) error {
	service := c.client.LeasesService()
	ours, err := service.List(ctx, "labels."+strconv.Quote(labelStage))
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	wanted := make(map[string]bool, len(want))
	for _, pin := range want {
		wanted[digestName(release.Release{Repository: pin.Repository, Digest: pin.Digest})] = true
	}
	for _, lease := range ours {
		ref := lease.Labels[labelStage]
		if wanted[ref] {
			continue
		}
		if err := c.dropLease(ctx, ref, lease); err != nil {
			return fmt.Errorf("lease of %s: %w", ref, err)
		}
	}
	return nil
}

// dropLease deletes a lease, unless its release is being staged. While it does
// so nobody can begin to.
func (c *session) dropLease(ctx context.Context, ref string, lease leases.Lease) error {
	if !c.claim(ref) {
		return nil
	}
	defer c.release(ref)
	if err := c.client.LeasesService().Delete(ctx, lease); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	return nil
}
