// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"

	"github.com/kubic-project/image-update-agent/agent/release"
)

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
	if err = c.ensureRecord(ctx, images.Image{Name: digestName(r), Target: target, Labels: stagedLabels(r)}); err != nil {
		return err
	}
	// From here on the name protects the content, but containerd may have collected
	// some of it just before.
	if ok, err = c.isComplete(ctx, target); err == nil && !ok {
		c.removeName(ctx, r)
		err = c.incomplete()
	}
	return err
}

func (c *session) incomplete() error {
	return fmt.Errorf("%w: not complete for %s", release.ErrNotFound, platforms.Format(c.platform))
}

// removeName removes the name if it is the agent's.
func (c *session) removeName(ctx context.Context, r release.Release) {
	ctx, cancel := cleanup(ctx)
	defer cancel()
	record, err := c.client.ImageService().Get(ctx, digestName(r))
	if _, ours := stagedOf(record); err == nil && ours {
		err = c.client.ImageService().Delete(ctx, record.Name, images.DeleteTarget(&record.Target))
	}
	if err != nil {
		c.log.Warn("cannot remove the image record from containerd", "name", digestName(r), "error", err)
	}
}
