// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// TestContainerdPullsByCertsD checks that containerd pulls over TLS, with a registry name other than the server's, and
// from the second registry if the first is away.
func TestContainerdPullsByCertsD(t *testing.T) {
	t.Parallel()
	for _, version := range node.Containerds() {
		n := startChecked(t, node.Options{Containerd: version, TLS: true})
		mirror := n.StartRegistry(false)
		image := node.Image{Answer: "a", Layers: []node.Layer{{Seed: 1, Size: 1 << 20}}}
		n.Registry.Push("demo/velum", image, "1", "2", "3")
		mirror.Push("demo/velum", image, "1", "2")
		n.WriteHosts("registry.example.com", mirror, n.Registry)
		cri := n.CRI()

		_, err := cri.Pull("registry.example.com/demo/velum:1")
		require.NoError(t, err)
		assert.Greater(t, mirror.Requests().Bytes(node.Blob), int64(1<<20))
		assert.Empty(t, n.Registry.Requests().Count("", node.Manifest))

		mirror.Down()
		_, err = cri.Pull("registry.example.com/demo/velum:2")
		require.NoError(t, err)
		assert.Equal(t, 1, n.Registry.Requests().Count("HEAD", node.Manifest))
		mirror.Up()
		_, err = cri.Pull("registry.example.com/demo/velum:3")
		require.NoError(t, err)
		assert.Subset(t, cri.Tags(), []string{"registry.example.com/demo/velum:1", "registry.example.com/demo/velum:3"})

		n.Registry.Intercept(node.Fail(node.Manifest, http.StatusInternalServerError))
		_, err = cri.Pull("registry.example.com/demo/velum:4")
		require.ErrorContains(t, err, "500")

		client := n.Containerd.Client()
		_, err = client.GetImage(t.Context(), "registry.example.com/demo/velum:1")
		require.NoError(t, err)
	}
}

// TestImageSpaceIsLimited fills the image file system of a node with little space for images; the machine's own disk
// does not fill.
func TestImageSpaceIsLimited(t *testing.T) {
	t.Parallel()
	n := startChecked(t, node.Options{Containerd: node.Containerd2, ImageSpace: 32 << 20})
	n.Registry.Push("demo/big", node.Image{Layers: []node.Layer{{Seed: 1, Size: 40 << 20}}}, "1")
	_, err := n.CRI().Pull(n.Registry.Ref("demo/big:1"))
	require.ErrorContains(t, err, "no space left on device")
}
