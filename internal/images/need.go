// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/policy"
)

// How many bytes a layer has unpacked for each that it has compressed, by how it
// is compressed. Base images and Go programs come to 2 to 2.8 with gzip; files are
// rounded up to blocks, and who estimates too little fills the disk. zstd at its
// usual levels is a fifth denser than gzip. What does not say how it is
// compressed is counted as the worst.
var unpackedRatio = map[string]int64{"": 1, "gzip": 3, "zstd": 4}

const worstRatio = 4

// maxNeed is more than any disk has. Sizes come from a manifest that anybody may
// have written, and whoever adds some of them up shall not get a negative number.
const maxNeed = 1 << 58

// askRoom asks whether there is room for what the pull would bring: once for
// each staging, for what was granted is granted to its second attempt, too.
func (g *guard) askRoom(ctx context.Context, blobs []ocispec.Descriptor) error {
	if g.job.terms.CheckSpace == nil || g.job.granted {
		return nil
	}
	need, err := g.need(ctx, blobs)
	if err != nil {
		return err
	}
	if err := g.job.terms.CheckSpace(ctx, need); err != nil {
		return &noRoomError{err}
	}
	g.job.granted = true
	return nil
}

// noRoomError is the caller's own "no".
type noRoomError struct{ error }

func (e *noRoomError) Unwrap() error { return e.error }

// need is what a manifest's config and layers would bring that is not here yet.
func (c *session) need(ctx context.Context, blobs []ocispec.Descriptor) (policy.SpaceNeeded, error) {
	there, err := c.stock(ctx)
	if err != nil {
		return policy.SpaceNeeded{}, err
	}
	chain, err := c.chain(ctx, blobs)
	if err != nil {
		return policy.SpaceNeeded{}, err
	}
	begun, err := c.begun(ctx)
	if err != nil {
		return policy.SpaceNeeded{}, err
	}
	have, total := tally(blobs, func(blob ocispec.Descriptor) int64 {
		if there.blobs[blob.Digest] {
			return blob.Size
		}
		return begun[remotes.MakeRefKey(ctx, blob)]
	})
	return policy.SpaceNeeded{
		Compressed: min(total-have, maxNeed),
		Unpacked:   min(unpacked(ctx, blobs, chain, there), maxNeed),
	}, nil
}

// begun are the bytes of blobs that are there in part, by containerd's name for
// the transfer.
func (c *session) begun(ctx context.Context) (map[string]int64, error) {
	statuses, err := c.client.ContentStore().ListStatuses(ctx)
	if err != nil {
		return nil, fmt.Errorf("list content: %w", err)
	}
	return offsets(statuses), nil
}

func offsets(statuses []content.Status) map[string]int64 {
	at := make(map[string]int64, len(statuses))
	for _, status := range statuses {
		at[status.Ref] = status.Offset
	}
	return at
}

// chain are the names that the image's snapshots have or will have.
func (c *session) chain(ctx context.Context, blobs []ocispec.Descriptor) ([]digest.Digest, error) {
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

// unpacked estimates the layers that have no snapshot. A layer that is listed
// twice is fetched once and unpacked twice.
func unpacked(ctx context.Context, blobs []ocispec.Descriptor, chain []digest.Digest, there stock) int64 {
	var sum int64
	n := 0
	for _, blob := range blobs {
		if !images.IsLayerType(blob.MediaType) {
			continue
		}
		if n >= len(chain) || !there.snapshots[chain[n].String()] {
			sum = add(sum, inflated(ctx, blob))
		}
		n++
	}
	return sum
}

// inflated estimates one layer.
func inflated(ctx context.Context, layer ocispec.Descriptor) int64 {
	ratio := int64(worstRatio)
	if compression, err := images.DiffCompression(ctx, layer.MediaType); err == nil {
		if known, ok := unpackedRatio[compression]; ok {
			ratio = known
		}
	}
	return min(max(layer.Size, 0), maxNeed/ratio) * ratio
}
