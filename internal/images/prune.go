// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"

	"github.com/kubic-project/image-update-agent/agent"
)

// Prune removes image records, each only while it still names the digest that
// was seen: a tag that somebody pulled anew since is left alone. It returns when
// containerd has freed what nothing points to any more.
func (s *Store) Prune(ctx context.Context, gone []agent.HeldImage) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := s.open(ctx)
	if err != nil {
		return s.placed(err)
	}
	defer c.close()
	service := c.client.ImageService()
	for n, h := range gone {
		target, err := service.Get(ctx, h.Name)
		if err == nil && target.Target.Digest == h.Digest {
			var opts []images.DeleteOpt
			if n == len(gone)-1 {
				opts = append(opts, images.SynchronousDelete())
			}
			err = service.Delete(ctx, h.Name, opts...)
		}
		if err != nil && !errdefs.IsNotFound(err) {
			return s.placed(fmt.Errorf("image %s: %w", h.Name, err))
		}
	}
	return nil
}
