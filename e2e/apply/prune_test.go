// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// After two more applies the first release is removed, with its blobs, when no container needs it; the rollback target
// stays, and so do images pulled by others.
func TestOldReleasesArePruned(t *testing.T) {
	t.Parallel()
	n, _, port := story.Running(t, "")
	first := story.ImageOf(t, story.St(t, n), "velum.yaml").Running.Digest
	n.Registry.Publish("others/app", "1.0.0-rev1-build1.1", node.Image{Layers: []node.Layer{{Seed: 9, Size: 1 << 10}}})
	foreign := n.Registry.Ref("others/app:1.0.0-rev1-build1.1")
	_, err := n.CRI().Pull(foreign)
	require.NoError(t, err)

	second := story.Rel(n, "demo/velum", "4.0.0-rev1-build1.2")
	story.Check(t, n)
	story.Apply(t, n, 0, "velum")
	third := story.Rel(n, "demo/velum", "4.0.0-rev1-build1.3")
	story.Check(t, n)
	story.Apply(t, n, 0, "velum")
	n.WaitAnswer(port, "4.0.0-rev1-build1.3")

	s := story.Check(t, n)
	story.IsCurrent(t, s)
	assert.ElementsMatch(t, []string{second, third}, story.Pins(t, n))
	removeDead(t, n)
	story.Check(t, n)
	assert.Empty(t, namesOf(t, n, first))
	n.CRI().AwaitTag(n.Registry.Ref("demo/velum:4.0.0-rev1-build1.1"), false)
	blobs := blobsOf(t, n)
	assert.NotContains(t, blobs, first)
	assert.Contains(t, blobs, digest.Digest(second))
	assert.ElementsMatch(t, []string{second, third}, story.Pins(t, n), "the rollback target stays")
	assert.Contains(t, n.CRI().Tags(), foreign)
	story.Answers(t, port, "4.0.0-rev1-build1.3")
	r := n.Agent("plan", "--offline")
	assert.NotContains(t, r.Stdout, "prune")
}

// removeDead removes ended containers, as kubelet does each minute.
func removeDead(t *testing.T, n *node.Node) {
	t.Helper()
	runtime := n.CRI().Runtime
	all, err := runtime.ListContainers(t.Context(), &cri.ListContainersRequest{})
	require.NoError(t, err)
	for _, c := range all.GetContainers() {
		if c.GetState() == cri.ContainerState_CONTAINER_EXITED {
			_, err := runtime.RemoveContainer(t.Context(), &cri.RemoveContainerRequest{ContainerId: c.GetId()})
			require.NoError(t, err)
		}
	}
}

// namesOf returns the image records of a digest.
func namesOf(t *testing.T, n *node.Node, d digest.Digest) []string {
	t.Helper()
	client, err := containerd.New(n.Containerd.Socket, containerd.WithDefaultNamespace("k8s.io"))
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	list, err := client.ImageService().List(t.Context(), "target.digest=="+d.String())
	require.NoError(t, err)
	var names []string
	for _, image := range list {
		names = append(names, image.Name)
	}
	return names
}

// blobsOf returns the blobs of containerd's content store.
func blobsOf(t *testing.T, n *node.Node) []digest.Digest {
	t.Helper()
	client, err := containerd.New(n.Containerd.Socket, containerd.WithDefaultNamespace("k8s.io"))
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	var blobs []digest.Digest
	require.NoError(t, client.ContentStore().Walk(t.Context(), func(i content.Info) error {
		blobs = append(blobs, i.Digest)
		return nil
	}))
	return blobs
}
