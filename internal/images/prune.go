// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"

	"github.com/kubic-project/image-update-agent/agent/node"
)

// Prune removes image records, each only while it still names the digest that
// was seen: a tag that somebody pulled anew since is left alone. It returns when
// containerd has freed what nothing points to any more: blobs and snapshots that
// another image shares stay.
//
// A container that runs from a pruned image goes on running, for it holds its
// snapshots. Its name and its blobs are gone, though, so it is started anew only
// where a registry answers: callers leave alone what any container uses.
func (s *Store) Prune(ctx context.Context, gone []node.HeldImage) error {
	return s.with(ctx, func(ctx context.Context, c *session) error { return c.prune(ctx, gone) })
}

func (c *session) prune(ctx context.Context, gone []node.HeldImage) error {
	still, err := c.still(ctx, gone)
	if err != nil {
		return err
	}
	for n, record := range still {
		// Servers before 2.0 do not know a condition; for them the look just before
		// has to do.
		opts := []images.DeleteOpt{images.DeleteTarget(&record.Target)}
		if n == len(still)-1 {
			opts = append(opts, images.SynchronousDelete())
		}
		err := c.client.ImageService().Delete(ctx, record.Name, opts...)
		if err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("image %s: %w", record.Name, err)
		}
	}
	return nil
}

// still are the records that name what was seen.
func (c *session) still(ctx context.Context, seen []node.HeldImage) ([]images.Image, error) {
	var still []images.Image
	for _, h := range seen {
		record, err := c.client.ImageService().Get(ctx, h.Name)
		switch {
		case errdefs.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("image %s: %w", h.Name, err)
		case record.Target.Digest == h.Digest:
			still = append(still, record)
		}
	}
	return still, nil
}
