// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
)

func TestUnpackedLayer(t *testing.T) {
	t.Parallel()
	for mediaType, want := range map[string]int64{
		ocispec.MediaTypeImageLayer:                       100,
		ocispec.MediaTypeImageLayerGzip:                   300,
		ocispec.MediaTypeImageLayerZstd:                   400,
		images.MediaTypeDockerSchema2LayerGzip:            300,
		images.MediaTypeDockerSchema2Layer:                400, // may still be compressed
		"application/vnd.oci.image.layer.v1.tar+squeezed": 100,
		"application/unknown":                             400,
	} {
		assert.Equal(t, want, unpackedLayer(t.Context(), ocispec.Descriptor{MediaType: mediaType, Size: 100}), mediaType)
		most := unpackedLayer(t.Context(), ocispec.Descriptor{MediaType: mediaType, Size: math.MaxInt64})
		assert.InDelta(t, maxNeeded, most, worstRatio, "%s: larger than any disk", mediaType)
		assert.Zero(t, unpackedLayer(t.Context(), ocispec.Descriptor{MediaType: mediaType, Size: -1}), mediaType)
	}
}

func TestUnpackedSize(t *testing.T) {
	t.Parallel()
	layers := []ocispec.Descriptor{
		{MediaType: ocispec.MediaTypeImageConfig, Size: 7}, blob("a", 100), blob("b", 1000), blob("a", 100),
	}
	chain := []digest.Digest{"one", "two", "three"}
	for name, is := range map[string]struct {
		there []string
		want  int64
	}{
		"all missing, one of them twice": {nil, 3600},
		"the lowest is there":            {[]string{"one"}, 3300},
		"all there":                      {[]string{"one", "two", "three"}, 0},
	} {
		s := contents{snapshots: map[string]bool{}}
		for _, name := range is.there {
			s.snapshots[name] = true
		}
		assert.Equal(t, is.want, unpackedSize(t.Context(), layers, chain, s), name)
	}
	all := contents{snapshots: map[string]bool{"one": true}}
	assert.EqualValues(t, 3300, unpackedSize(t.Context(), layers, chain[:1], all), "a config that knows less than the manifest")
}

// For any manifest, some needs can be added without overflow.
func TestSpaceNeededProperties(t *testing.T) {
	t.Parallel()
	c, store, _ := inMemory(t, &fakeRecords{records: map[string]images.Image{}}, unpackedAll{})
	target := heldImage(t, store, c.platform)
	manifest, err := images.Manifest(t.Context(), store, target, c.matcher)
	require.NoError(t, err)
	there := append([]ocispec.Descriptor{manifest.Config}, manifest.Layers...)
	none, err := c.spaceNeeded(t.Context(), there)
	require.NoError(t, err)
	assert.Equal(t, policy.SpaceNeeded{}, none, "all is there")
	ctx := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		blobs := there
		for _, size := range rapid.SliceOf(rapid.Int64()).Draw(t, "sizes") {
			blobs = append(blobs, blob("missing", size))
		}
		n, err := c.spaceNeeded(ctx, blobs)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, n.Compressed, int64(0))
		assert.GreaterOrEqual(t, n.Unpacked, int64(0))
		assert.Positive(t, 10*(n.Compressed+n.Unpacked)+1)
	})
}

// The space of a resumed pull was already granted.
func TestSpaceIsCheckedOnce(t *testing.T) {
	t.Parallel()
	c, store, _ := inMemory(t, &fakeRecords{records: map[string]images.Image{}}, unpackedAll{})
	manifest, err := images.Manifest(t.Context(), store, heldImage(t, store, c.platform), c.matcher)
	require.NoError(t, err)
	blobs := append([]ocispec.Descriptor{manifest.Config}, append(manifest.Layers, blob("missing", 100))...)
	asked, answer := 0, errors.New("no")
	j := &job{options: node.StageOptions{CheckSpace: func(_ context.Context, n policy.SpaceNeeded) error {
		asked++
		assert.Equal(t, policy.SpaceNeeded{Compressed: 100, Unpacked: 300}, n)
		return answer
	}}}
	g := &guard{session: c, job: j}
	err = g.checkSpace(t.Context(), blobs)
	require.ErrorIs(t, err, answer)
	require.EqualError(t, err, "no")
	assert.False(t, j.keepsLease(err), "nothing to keep")
	answer = nil
	require.NoError(t, g.checkSpace(t.Context(), blobs))
	require.NoError(t, g.checkSpace(t.Context(), blobs))
	assert.Equal(t, 2, asked)
	require.NoError(t, (&guard{session: c, job: &job{}}).checkSpace(t.Context(), blobs), "no CheckSpace")
}
