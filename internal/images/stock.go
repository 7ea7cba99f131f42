// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// stock is what containerd has at one moment: two listings, however many images
// there are. Asking for each blob of each image took a hundred calls for 20
// images, and half of a poll's CPU.
type stock struct {
	blobs     map[digest.Digest]bool
	snapshots map[string]bool // committed ones, by chain id
}

// parts is what an image consists of for the node's platform. A digest names
// the same parts for ever, so they are read once.
type parts struct {
	config   digest.Digest
	blobs    []digest.Digest // of index, manifest, config and layers
	snapshot string          // of the last layer, which implies those below it; "" for another platform
}

// stock lists blobs and snapshots.
func (c *session) stock(ctx context.Context) (stock, error) {
	s := stock{blobs: map[digest.Digest]bool{}, snapshots: map[string]bool{}}
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

// complete reports whether every blob is there and the image is unpacked.
func (s stock) complete(p parts) bool {
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

// anatomy gives the parts of an image; none where its content does not tell.
func (c *session) anatomy(ctx context.Context, there stock, target ocispec.Descriptor) (parts, error) {
	if !there.blobs[target.Digest] {
		return parts{}, nil
	}
	c.mu.Lock()
	p, ok := c.known[target.Digest]
	c.mu.Unlock()
	if ok {
		return p, nil
	}
	p, err := c.dissect(ctx, target)
	if err != nil {
		return parts{config: p.config}, c.unreadable(ctx, target, err)
	}
	c.mu.Lock()
	c.known[target.Digest] = p
	c.mu.Unlock()
	return p, nil
}

// dissect reads index, manifest and config of an image.
func (c *session) dissect(ctx context.Context, target ocispec.Descriptor) (parts, error) {
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
	note := func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		p.blobs = append(p.blobs, d.Digest)
		return children(ctx, d)
	}
	if err := images.Walk(ctx, images.HandlerFunc(note), target); err != nil {
		return p, err
	}
	layers, err := images.RootFS(ctx, store, config)
	if err != nil {
		return p, err
	}
	p.snapshot = identity.ChainID(layers).String()
	return p, nil
}

// forget drops the parts of images that have no record any more.
func (c *session) forget(records []images.Image) {
	named := make(map[digest.Digest]bool, len(records))
	for _, r := range records {
		named[r.Target.Digest] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for d := range c.known {
		if !named[d] {
			delete(c.known, d)
		}
	}
}
