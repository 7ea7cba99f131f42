// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"testing"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/internal/node/images"
)

// TestStagedForTheSnapshotterOfCRI checks that staging unpacks for the snapshotter that CRI uses: a container starts
// without unpacking again.
func TestStagedForTheSnapshotterOfCRI(t *testing.T) {
	t.Parallel()
	for _, version := range node.Containerds() {
		t.Run("containerd "+string(version), func(t *testing.T) {
			t.Parallel()
			r := newPodsRigWith(t, node.Options{Containerd: version, Snapshotter: "native"})
			name, err := r.runtime.Snapshotter(t.Context())
			require.NoError(t, err)
			require.Equal(t, "native", name)
			fs, err := r.runtime.Filesystem(t.Context())
			require.NoError(t, err)
			assert.Equal(t, r.Dir+"/containerd/root/io.containerd.snapshotter.v1.native", fs.Path)

			r.store = r.openWith(images.Options{Snapshotter: r.runtime.Snapshotter})
			release, _, image := r.staged("native/velum")
			assert.True(t, r.pin(release).Complete)
			unpacked := r.snapshots("native", snapshots.KindCommitted)
			assert.Empty(t, r.snapshots("overlayfs", snapshots.KindCommitted))
			sandbox, config := r.sandbox("native-node1", "file")
			r.start(sandbox, config, "velum", image, 0)
			found := r.of("native-node1")
			require.Len(t, found, 1)
			assert.True(t, found[0].Running)
			assert.ElementsMatch(t, unpacked, r.snapshots("native", snapshots.KindCommitted), "it was unpacked again")

			// A client with another snapshotter finds nothing unpacked.
			other := r.openWith(images.Options{Snapshotter: func(context.Context) (string, error) { return "overlayfs", nil }})
			held, err := other.Held(t.Context())
			require.NoError(t, err)
			for _, h := range held {
				assert.False(t, h.Complete, h.Name)
			}
		})
	}
}

// snapshots returns a snapshotter's snapshots of a kind.
func (r *imagesRig) snapshots(snapshotter string, kind snapshots.Kind) (names []string) {
	r.t.Helper()
	err := r.client.SnapshotService(snapshotter).Walk(r.t.Context(), func(_ context.Context, i snapshots.Info) error {
		if i.Kind == kind {
			names = append(names, i.Name)
		}
		return nil
	})
	require.NoError(r.t, err)
	return names
}
