// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/policy"
)

// unpackedRatio estimates the size of an unpacked layer, by compression. Base images and Go programs have 2 to 2.8 with
// gzip; files are rounded up to blocks, and an underestimate fills the disk. zstd compresses a fifth better than gzip.
var unpackedRatio = map[string]int64{"": 1, "gzip": 3, "zstd": 4}

// worstRatio is for an unknown compression.
const worstRatio = 4

// maxNeeded exceeds any disk: sums of sizes from an untrusted manifest must not overflow.
const maxNeeded = 1 << 58

// checkSpace calls CheckSpace with the size of the pull, until it succeeds once in this staging.
func (g *guard) checkSpace(ctx context.Context, blobs []ocispec.Descriptor) error {
	if g.job.options.CheckSpace == nil || g.job.spaceGranted {
		return nil
	}
	needed, err := g.spaceNeeded(ctx, blobs)
	if err != nil {
		return err
	}
	if err := g.job.options.CheckSpace(ctx, needed); err != nil {
		return &spaceError{err}
	}
	g.job.spaceGranted = true
	return nil
}

// spaceError is an error of CheckSpace.
type spaceError struct{ error }

func (e *spaceError) Unwrap() error { return e.error }

// spaceNeeded estimates the size of the missing part of a manifest's config and layers.
func (c *session) spaceNeeded(ctx context.Context, blobs []ocispec.Descriptor) (policy.SpaceNeeded, error) {
	stored, err := c.listContent(ctx)
	if err != nil {
		return policy.SpaceNeeded{}, err
	}
	chain, err := c.chainIDs(ctx, blobs)
	if err != nil {
		return policy.SpaceNeeded{}, err
	}
	partial, err := partialBlobs(ctx, c.client.ContentStore())
	if err != nil {
		return policy.SpaceNeeded{}, err
	}
	have, total := sumBlobs(blobs, func(blob ocispec.Descriptor) int64 {
		if stored.blobs[blob.Digest] {
			return blob.Size
		}
		return partial[remotes.MakeRefKey(ctx, blob)]
	})
	return policy.SpaceNeeded{
		Compressed: min(total-have, maxNeeded),
		Unpacked:   min(unpackedSize(ctx, blobs, chain, stored), maxNeeded),
	}, nil
}

// partialBlobs returns the stored bytes of partial blobs, by containerd's name for the transfer.
func partialBlobs(ctx context.Context, store ingests) (map[string]int64, error) {
	statuses, err := store.ListStatuses(ctx)
	if err != nil {
		return nil, fmt.Errorf("list content: %w", err)
	}
	partial := make(map[string]int64, len(statuses))
	for _, status := range statuses {
		partial[status.Ref] = status.Offset
	}
	return partial, nil
}

// chainIDs returns the names of the image's snapshots, stored or not.
func (c *session) chainIDs(ctx context.Context, blobs []ocispec.Descriptor) ([]digest.Digest, error) {
	for _, blob := range blobs {
		if !images.IsConfigType(blob.MediaType) {
			continue
		}
		layers, err := images.RootFS(ctx, c.client.ContentStore(), blob)
		if err != nil {
			return nil, fmt.Errorf("config %s: %w", blob.Digest, err)
		}
		return identity.ChainIDs(layers), nil
	}
	return nil, nil
}

// unpackedSize estimates the layers that have no snapshot. A layer that is listed twice
// is unpacked twice.
func unpackedSize(ctx context.Context, blobs []ocispec.Descriptor, chain []digest.Digest, stored contents) int64 {
	var sum int64
	n := 0
	for _, blob := range blobs {
		if !images.IsLayerType(blob.MediaType) {
			continue
		}
		if n >= len(chain) || !stored.snapshots[chain[n].String()] {
			sum = add(sum, unpackedLayer(ctx, blob))
		}
		n++
	}
	return sum
}

func unpackedLayer(ctx context.Context, layer ocispec.Descriptor) int64 {
	ratio := int64(worstRatio)
	if compression, err := images.DiffCompression(ctx, layer.MediaType); err == nil {
		if known, ok := unpackedRatio[compression]; ok {
			ratio = known
		}
	}
	return min(max(layer.Size, 0), maxNeeded/ratio) * ratio
}
