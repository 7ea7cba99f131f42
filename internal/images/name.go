// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// Name gives a digest that the node holds the name repository@digest. By it CRI
// finds what a pod manifest asks for as repository:tag@digest, of whatever tag,
// and no registry is asked: CRI leaves the tag out where there is a digest. CRI
// hears of the name by an event, a moment after Name has returned.
//
// release.ErrNotFound where the digest is not complete, for the node's platform:
// CRI would find the name, and a container would not start. The name is one
// that staging gives, so it is pruned like one; a pull by CRI writes the same,
// and then it is CRI's.
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
	if err = c.record(ctx, images.Image{Name: digestName(r), Target: target, Labels: stagedLabels(r)}); err != nil {
		return err
	}
	// From here on the name holds the content. What was collected since it was
	// found, for want of a pin, has left a name that promises too much.
	if ok, err = c.complete(ctx, target); err == nil && !ok {
		c.unname(ctx, r)
		err = c.incomplete()
	}
	return err
}

func (c *session) incomplete() error {
	return fmt.Errorf("%w: not complete for %s", release.ErrNotFound, platforms.Format(c.platform))
}

// unname removes the name where it is ours.
func (c *session) unname(ctx context.Context, r release.Release) {
	ctx, cancel := cleanup(ctx)
	defer cancel()
	record, err := c.client.ImageService().Get(ctx, digestName(r))
	if _, ours := stagedOf(record); err == nil && ours {
		err = c.client.ImageService().Delete(ctx, record.Name, images.DeleteTarget(&record.Target))
	}
	if err != nil {
		c.log.Warn("containerd: image record not removed", "name", digestName(r), "error", err)
	}
}
