// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent"
)

// Held lists the image records of the namespace, ours and everybody's. A
// record whose content cannot be read has no Config and is not Complete.
func (s *Store) Held(ctx context.Context) ([]agent.HeldImage, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := s.open(ctx)
	if err != nil {
		return nil, s.placed(err)
	}
	defer c.close()
	held, err := c.held(ctx)
	return held, s.placed(err)
}

func (c *session) held(ctx context.Context) ([]agent.HeldImage, error) {
	records, err := c.client.ImageService().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	configs := map[digest.Digest]digest.Digest{} // by target: most images have several names
	complete := map[digest.Digest]bool{}
	held := make([]agent.HeldImage, 0, len(records))
	for _, record := range records {
		target := record.Target
		image := agent.HeldImage{Name: record.Name, Digest: target.Digest}
		if _, ok := configs[target.Digest]; !ok {
			if configs[target.Digest], err = c.config(ctx, target); err != nil {
				return nil, fmt.Errorf("%s: %w", record.Name, err)
			}
		}
		image.Config = configs[target.Digest]
		if pin, ok := pinOf(record); ok {
			image.Pin, image.Repository = true, pin.Repository
			if _, ok := complete[target.Digest]; !ok {
				if complete[target.Digest], err = c.complete(ctx, target); err != nil {
					return nil, fmt.Errorf("%s: %w", record.Name, err)
				}
			}
			image.Complete = complete[target.Digest]
		}
		held = append(held, image)
	}
	return held, nil
}

// config reads the config digest of the node's platform; empty where the
// content does not tell it.
func (c *session) config(ctx context.Context, target ocispec.Descriptor) (digest.Digest, error) {
	config, err := images.Config(ctx, c.client.ContentStore(), target, c.matcher)
	if err != nil {
		return "", c.unreadable(ctx, target, err)
	}
	return config.Digest, nil
}

// complete reports whether all blobs for the node's platform are in the content
// store and the last layer is in the snapshotter, which implies those below it.
func (c *session) complete(ctx context.Context, target ocispec.Descriptor) (bool, error) {
	store := c.client.ContentStore()
	available, required, _, missing, err := images.Check(ctx, store, target, c.matcher)
	if err != nil || !available || len(missing) > 0 {
		return false, c.unreadable(ctx, target, err)
	}
	platform, err := images.ConfigPlatform(ctx, store, required[0])
	if err != nil || !c.matcher.Match(platform) {
		return false, c.unreadable(ctx, target, err)
	}
	image := client.NewImageWithPlatform(c.client, images.Image{Target: target}, c.matcher)
	unpacked, err := image.IsUnpacked(ctx, c.snapshotter)
	if err != nil {
		return false, fmt.Errorf("snapshotter %q: %w", c.snapshotter, err)
	}
	return unpacked, nil
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
