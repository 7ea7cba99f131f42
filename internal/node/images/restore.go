// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// notImage returns the media type of a target that is neither manifest nor index; empty if it is one. CRI's pull writes
// the record of the tag before it checks the content, so a login page stays there, on all versions.
func notImage(target ocispec.Descriptor) string {
	kind := target.MediaType
	if images.IsManifestType(kind) || images.IsIndexType(kind) || kind == images.MediaTypeDockerSchema1Manifest {
		return ""
	}
	if kind == "" {
		return "no media type"
	}
	return outside.Text(kind)
}

// Restore points a broken record at a complete digest. Its labels stay. CRI learns of it from an event, a moment after
// Restore has returned.
//
// It returns release.ErrConflict if the record has changed since was, and release.ErrNotFound if the digest is not
// complete for the node's platform.
func (s *Store) Restore(ctx context.Context, was node.HeldImage, d digest.Digest) error {
	return s.with(ctx, func(ctx context.Context, c *session) error {
		if err := c.restore(ctx, was, d); err != nil {
			return fmt.Errorf("%s: %w", was.Name, err)
		}
		return nil
	})
}

func (c *session) restore(ctx context.Context, was node.HeldImage, d digest.Digest) error {
	target, ok, err := c.find(ctx, release.Release{Digest: d})
	if err != nil {
		return err
	}
	if !ok {
		return c.incomplete()
	}
	record, err := c.client.ImageService().Get(ctx, was.Name)
	switch {
	case errdefs.IsNotFound(err), err == nil && (record.Target.Digest != was.Digest || notImage(record.Target) == ""):
		return release.ErrConflict
	case err != nil:
		return err
	}
	record.Target = target
	_, err = c.client.ImageService().Update(ctx, record, "target")
	return err
}
