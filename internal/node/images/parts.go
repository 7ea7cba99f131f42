// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"
	"maps"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

// contents is the content of containerd: two listings, for any number of images. Requests for single blobs took half of
// a poll's CPU.
type contents struct {
	blobs     map[digest.Digest]bool
	snapshots map[string]bool // committed ones, by chain id
}

// parts are the parts of an image for the node's platform. A digest always has the same parts, so the Store caches
// them.
type parts struct {
	config   digest.Digest
	origin   string          // of its label, see ocimanifest.Build
	blobs    []digest.Digest // of index, manifest, config and layers
	snapshot string          // of the last layer, which implies the others; "" for another platform
}

// listContent lists blobs and snapshots.
func (c *session) listContent(ctx context.Context) (contents, error) {
	s := contents{blobs: map[digest.Digest]bool{}, snapshots: map[string]bool{}}
	err := c.client.ContentStore().Walk(ctx, func(i content.Info) error {
		s.blobs[i.Digest] = true
		return nil
	})
	if err != nil {
		return s, fmt.Errorf("list content: %w", err)
	}
	name, err := c.snapshotterName(ctx)
	if err != nil {
		return s, err
	}
	err = c.client.SnapshotService(name).Walk(ctx, func(_ context.Context, i snapshots.Info) error {
		if i.Kind == snapshots.KindCommitted {
			s.snapshots[i.Name] = true
		}
		return nil
	})
	if err != nil {
		return s, fmt.Errorf("list snapshots of %q: %w", name, err)
	}
	return s, nil
}

// isComplete reports whether all blobs for the node's platform are stored and the image
// is unpacked.
func (c *session) isComplete(ctx context.Context, target ocispec.Descriptor) (bool, error) {
	stored, err := c.listContent(ctx)
	if err != nil {
		return false, err
	}
	parts, err := c.partsOf(ctx, stored, target)
	return stored.isComplete(parts), err
}

func (s contents) isComplete(p parts) bool {
	if p.snapshot == "" || !s.snapshots[p.snapshot] {
		return false
	}
	for _, blob := range p.blobs {
		if !s.blobs[blob] {
			return false
		}
	}
	return true
}

// partsOf returns the parts of an image, without blobs if its content is unreadable.
func (c *session) partsOf(ctx context.Context, stored contents, target ocispec.Descriptor) (parts, error) {
	if !stored.blobs[target.Digest] {
		return parts{}, nil
	}
	c.mu.Lock()
	p, ok := c.partsCache[target.Digest]
	c.mu.Unlock()
	if ok {
		return p, nil
	}
	p, err := c.readParts(ctx, target)
	if err != nil {
		return parts{config: p.config}, c.readError(ctx, target, err)
	}
	c.mu.Lock()
	c.partsCache[target.Digest] = p
	c.mu.Unlock()
	return p, nil
}

// readError returns containerd's own errors, and nil for content that is missing or not an image.
func (c *session) readError(ctx context.Context, target ocispec.Descriptor, err error) error {
	switch {
	case errdefs.IsNotFound(err):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errdefs.IsUnavailable(err):
		return err
	}
	c.log.Debug("cannot read the image content", "digest", target.Digest, "error", err)
	return nil
}

// readParts reads index, manifest and config of an image.
func (c *session) readParts(ctx context.Context, target ocispec.Descriptor) (parts, error) {
	store := c.client.ContentStore()
	config, err := images.Config(ctx, store, target, c.matcher)
	if err != nil {
		return parts{}, err
	}
	p := parts{config: config.Digest}
	platform, err := images.ConfigPlatform(ctx, store, config)
	if err != nil || !c.matcher.Match(platform) {
		return p, err
	}
	children := images.LimitManifests(images.FilterPlatforms(images.ChildrenHandler(store), c.matcher), c.matcher, 1)
	collect := func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		p.blobs = append(p.blobs, d.Digest)
		return children(ctx, d)
	}
	if err := images.Walk(ctx, images.HandlerFunc(collect), target); err != nil {
		return p, err
	}
	layers, err := images.RootFS(ctx, store, config)
	if err != nil {
		return p, err
	}
	body, err := content.ReadBlob(ctx, store, config)
	if err != nil {
		return p, err
	}
	p.origin = ocimanifest.Origin(body)
	p.snapshot = identity.ChainID(layers).String()
	return p, nil
}

// trimParts drops the cached parts of images without a record.
func (c *session) trimParts(records []images.Image) {
	named := make(map[digest.Digest]bool, len(records))
	for _, r := range records {
		named[r.Target.Digest] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.partsCache, func(d digest.Digest, _ parts) bool { return !named[d] })
}
