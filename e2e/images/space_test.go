// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	containerdimages "github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentnode "github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/e2e/node"
)

// layersOf returns the layers of a staged release.
func (r *imagesRig) layersOf(release release.Release) []ocispec.Descriptor {
	r.t.Helper()
	image, err := r.client.GetImage(r.t.Context(), r.pin(release).Name)
	require.NoError(r.t, err)
	manifest, err := containerdimages.Manifest(r.t.Context(), r.client.ContentStore(), image.Target(), platforms.Default())
	require.NoError(r.t, err)
	return manifest.Layers
}

// testStageRoom checks that the space check ignores layers that the node already has, and that a refusal fetches no
// layer.
func testStageRoom(t *testing.T, r *imagesRig) {
	layers := r.layers(3)
	below := r.publish("room/below", "4.0.0-rev1-build1.1", node.Image{Layers: layers[:1]})
	r.stage(below)
	release := r.publish("room/velum", "4.0.0-rev1-build1.1", node.Image{Layers: layers})
	errFull := errors.New("no room")
	var needs []policy.SpaceNeeded
	refuse := func(_ context.Context, n policy.SpaceNeeded) error {
		assert.Less(t, r.Registry.Requests().Bytes(node.Blob), int64(64<<10), "a layer was fetched before")
		needs = append(needs, n)
		return errFull
	}
	r.Registry.Forget()
	require.ErrorIs(t, r.store.Stage(t.Context(), release, agentnode.StageOptions{CheckSpace: refuse}), errFull)
	assert.Len(t, needs, 1)
	assert.Less(t, r.Registry.Requests().Bytes(node.Blob), int64(64<<10), "a layer was fetched after")
	assert.Empty(t, r.records(release.Repository))
	assert.Empty(t, r.leases())

	r.Registry.Forget()
	require.NoError(t, r.store.Stage(t.Context(), release, agentnode.StageOptions{CheckSpace: func(_ context.Context, n policy.SpaceNeeded) error {
		needs = append(needs, n)
		return nil
	}}))
	require.Len(t, needs, 2)
	assert.Equal(t, needs[0], needs[1])
	missing := r.layersOf(release)[2:] // the node has the first two
	assert.Equal(t, missing[0].Size+missing[1].Size, needs[0].Compressed)
	assert.Equal(t, 3*needs[0].Compressed, needs[0].Unpacked)

	require.NoError(t, r.store.Stage(t.Context(), release, agentnode.StageOptions{CheckSpace: refuse}), "nothing is missing")
	assert.Len(t, needs, 2)
}

// smallSpace has room for containerd's own files, the images that every node has, and about 60 MB.
const smallSpace = 80 << 20

// TestImagesDiskFull fills the disk during a pull and during unpacking: staging restores the former state and frees the
// space.
func TestImagesDiskFull(t *testing.T) {
	t.Parallel()
	for _, version := range node.Containerds() {
		t.Run("containerd "+string(version), func(t *testing.T) {
			t.Parallel()
			r := newImagesRigWith(t, node.Options{Containerd: version, ImageSpace: smallSpace})
			before := r.things()
			for name, sizes := range map[string][]int64{
				"pull": {24 << 20, 24 << 20, 24 << 20, 24 << 20}, "unpack": {1 << 20, 36 << 20},
			} {
				var layers []node.Layer
				for _, size := range sizes {
					r.seed++
					layers = append(layers, node.Layer{Seed: r.seed, Size: size})
				}
				rel := r.publish("full/"+name, "4.0.0-rev1-build1.1", node.Image{Layers: layers})
				err := r.store.Stage(t.Context(), rel, agentnode.StageOptions{})
				require.ErrorIs(t, err, release.ErrNoSpace, name)
				assert.ErrorContains(t, err, rel.Repository, name)
				assert.Empty(t, r.records(rel.Repository), name)
				assert.Empty(t, r.leases(), name)
				assert.ElementsMatch(t, before, r.things(), name)
			}
			r.seed++
			release := r.publish("full/fits", "4.0.0-rev1-build1.1", node.Image{
				Layers: []node.Layer{{Seed: r.seed, Size: 20 << 20}}, // plus the same unpacked
			})
			r.stage(release)
			r.assertContent(release)
		})
	}
}

// things returns all content, partial content and snapshots in containerd's store.
func (r *imagesRig) things() []string {
	r.t.Helper()
	var things []string
	store := r.client.ContentStore()
	require.NoError(r.t, store.Walk(r.t.Context(), func(i content.Info) error {
		things = append(things, "blob "+i.Digest.String())
		return nil
	}))
	parts, err := store.ListStatuses(r.t.Context())
	require.NoError(r.t, err)
	for _, part := range parts {
		things = append(things, "part "+part.Ref)
	}
	require.NoError(r.t, r.client.SnapshotService("overlayfs").Walk(r.t.Context(),
		func(_ context.Context, i snapshots.Info) error {
			things = append(things, "snapshot "+i.Name)
			return nil
		}))
	return things
}
