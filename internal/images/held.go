// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/node"
)

// Held lists the image records of the namespace, ours and everybody's. A
// record whose content cannot be read has no Config and is not Complete.
func (s *Store) Held(ctx context.Context) ([]node.HeldImage, error) {
	var held []node.HeldImage
	err := s.with(ctx, func(ctx context.Context, c *session) (err error) {
		held, err = c.held(ctx)
		return err
	})
	return held, err
}

func (c *session) held(ctx context.Context) ([]node.HeldImage, error) {
	records, err := c.client.ImageService().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	there, err := c.stock(ctx)
	if err != nil {
		return nil, err
	}
	held := make([]node.HeldImage, 0, len(records))
	for _, record := range records {
		target := record.Target
		image := node.HeldImage{Name: record.Name, Digest: target.Digest}
		parts, err := c.anatomy(ctx, there, target)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", record.Name, err)
		}
		image.Config = parts.config
		if pin, ok := pinOf(record); ok {
			image.Pin, image.Repository = true, pin.Repository
			image.Complete = there.complete(parts)
		} else {
			image.Repository, image.Staged = stagedOf(record)
		}
		held = append(held, image)
	}
	c.forget(records)
	return held, nil
}

// complete reports whether all blobs for the node's platform are in the content
// store and the image is unpacked in the snapshotter.
func (c *session) complete(ctx context.Context, target ocispec.Descriptor) (bool, error) {
	there, err := c.stock(ctx)
	if err != nil {
		return false, err
	}
	parts, err := c.anatomy(ctx, there, target)
	return there.complete(parts), err
}

// unreadable tells content that is not there, or is no image (no error: the
// answer is "no"), from a containerd that does not answer.
func (c *session) unreadable(ctx context.Context, target ocispec.Descriptor, err error) error {
	switch {
	case err == nil, errdefs.IsNotFound(err):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errdefs.IsUnavailable(err):
		return err
	}
	c.log.Debug("image content: not readable", "digest", target.Digest, "error", err)
	return nil
}
