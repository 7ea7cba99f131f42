// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"

	"github.com/kubic-project/image-update-agent/agent/node"
)

// Prune removes image records, each only if it still has the given digest: a tag that was pulled since stays. It
// returns when containerd has freed the blobs and snapshots that nothing else refers to.
//
// A container that runs from a pruned image continues to run, but can only be restarted with a registry: callers must
// not pass images that a container uses.
func (s *Store) Prune(ctx context.Context, gone []node.HeldImage) error {
	return s.with(ctx, func(ctx context.Context, c *session) error { return c.prune(ctx, gone) })
}

func (c *session) prune(ctx context.Context, gone []node.HeldImage) error {
	records, err := c.unchanged(ctx, gone)
	if err != nil {
		return err
	}
	for n, record := range records {
		// Servers before 2.0 ignore the condition; there, unchanged must suffice.
		opts := []images.DeleteOpt{images.DeleteTarget(&record.Target)}
		if n == len(records)-1 {
			opts = append(opts, images.SynchronousDelete())
		}
		err := c.client.ImageService().Delete(ctx, record.Name, opts...)
		if err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("image %s: %w", record.Name, err)
		}
	}
	return nil
}

// unchanged returns the records that still have the observed digest.
func (c *session) unchanged(ctx context.Context, seen []node.HeldImage) ([]images.Image, error) {
	var records []images.Image
	for _, h := range seen {
		record, err := c.client.ImageService().Get(ctx, h.Name)
		switch {
		case errdefs.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("image %s: %w", h.Name, err)
		case record.Target.Digest == h.Digest:
			records = append(records, record)
		}
	}
	return records, nil
}
