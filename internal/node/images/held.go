// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"

	"github.com/kubic-project/image-update-agent/agent/node"
)

// Held lists all image records of the namespace. A record with unreadable content has
// no Config and is not Complete.
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
	stored, err := c.listContent(ctx)
	if err != nil {
		return nil, err
	}
	held := make([]node.HeldImage, 0, len(records))
	for _, record := range records {
		image := node.HeldImage{Name: record.Name, Digest: record.Target.Digest}
		parts, err := c.partsOf(ctx, stored, record.Target)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", record.Name, err)
		}
		image.Config, image.Origin, image.NotImage = parts.config, parts.origin, notImage(record.Target)
		if pin, ok := pinOf(record); ok {
			image.Pin, image.Repository = true, pin.Repository
			image.MediaType, image.Size = record.Target.MediaType, record.Target.Size
			image.Complete = stored.isComplete(parts)
		} else {
			image.Repository, image.Staged = stagedOf(record)
		}
		held = append(held, image)
	}
	c.trimParts(records)
	return held, nil
}
