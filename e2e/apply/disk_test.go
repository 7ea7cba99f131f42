// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// diskSpace is the size of the filesystem of the node's images, of which they take a tenth.
const diskSpace = 96 << 20

// crammed returns a node with little space for images, of which 20 MiB must stay free, and a daemon that polls on
// request.
func crammed(t *testing.T) (n *node.Node, daemon *node.Process) {
	t.Helper()
	n = node.Start(t, node.Options{Containerd: node.Containerd2, ImageSpace: diskSpace})
	n.WriteFile(story.ConfigFile, "disk:\n  reserve: 20MiB\n")
	story.Template(n, 1, n.Registry.Ref("demo/velum:__TAG__"))
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
	n.WriteFile(story.TemplateDir+"other.yaml", story.PodYAML("other", n.Registry.Ref("demo/other:1.0.0-rev1")))
	story.Rel(n, "demo/other", "1.0.0-rev1-build1.1")
	s := story.Cycle(t, n, 0)
	story.IsCurrent(t, s)
	return n, story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
}

// lookAgain makes the daemon observe the node without asking a registry, as it does every ten minutes and for a
// person's request. It returns any requests.
func lookAgain(t *testing.T, n *node.Node) (status.Status, node.Requests) {
	t.Helper()
	n.Registry.Forget()
	before := story.St(t, n).Written
	for _, verb := range []string{"hold", "resume"} {
		r := n.Agent(verb, "other")
		require.Equal(t, 0, r.Code, r.Stderr)
	}
	s := story.St(t, n)
	assert.True(t, s.Written.After(before), "it has not looked")
	return s, n.Registry.Requests()
}

// heldForRoom asserts that an update waits for space, with figures.
func heldForRoom(t *testing.T, s status.Status, figures string) {
	t.Helper()
	assert.Equal(t, status.StateHeld, s.State, s.Reason)
	pod := story.PodOf(t, s, "velum.yaml")
	require.Len(t, pod.Holds, 1)
	assert.Equal(t, status.HoldDisk, pod.Holds[0].Name)
	assert.Regexp(t, figures, pod.Holds[0].Reason)
	assert.Regexp(t, figures, s.Reason)
	assert.False(t, story.ImageOf(t, s, "velum.yaml").Staged)
}

// A pull that would leave too little space waits, with figures, before a layer is fetched, and continues when there is
// space; until then, there are no requests.
func TestNoSpaceForAPull(t *testing.T) {
	t.Parallel()
	n, daemon := crammed(t)
	n.Registry.Push("demo/filler", node.Image{Layers: []node.Layer{{Seed: 1, Size: 20 << 20}}}, "1") // twice: blob and file
	filler := n.Registry.Ref("demo/filler:1")
	_, err := n.CRI().Pull(filler)
	require.NoError(t, err)
	layers := []node.Layer{{Seed: 2, Size: 8 << 20}}
	wanted := n.Registry.Publish("demo/velum", "4.0.0-rev2-build1.1", node.Image{Layers: layers})
	before := story.Look(t, n, story.GrainFile)
	n.Registry.Forget()
	s := story.Check(t, n)
	const figures = `needs 8\.4 MB to pull and 25\.2 MB to unpack with \d\d\.\d MB of \d+\.\d MB kept free, ` +
		`but only \d\d\.\d MB are free on /`
	heldForRoom(t, s, figures)
	assert.Less(t, n.Registry.Requests().Bytes(node.Blob), int64(64<<10), "a layer was fetched")
	for range 3 {
		s, asked := lookAgain(t, n)
		heldForRoom(t, s, figures)
		assert.Empty(t, asked)
	}
	before.Unchanged(t, n, story.GrainFile)

	n.Registry.Forget() // before there is space: any look may see it
	_, err = n.CRI().Images.RemoveImage(t.Context(), &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: filler}})
	require.NoError(t, err)
	for _, verb := range []string{"hold", "resume"} {
		r := n.Agent(verb, "other")
		require.Equal(t, 0, r.Code, r.Stderr)
	}
	node.Eventually(t, "the update is staged", story.Ready, func() error { // a person's request does not wait for it
		if s := story.St(t, n); s.State != status.StateStaged {
			return errors.New(s.Reason)
		}
		return nil
	})
	asked := n.Registry.Requests()
	manifests := asked.Count(http.MethodGet, node.Manifest)
	assert.Positive(t, manifests)
	assert.LessOrEqual(t, manifests, 2, "once more where the person's request interrupted the pull")
	assert.Zero(t, asked.Count("", node.Tags))
	assert.Contains(t, story.Pins(t, n), wanted)
	assert.Equal(t, 0, daemon.Stop().Code)
}

// An image that unpacks to more than estimated fills the disk: all of it is removed, the status has the reason, and it
// is not pulled repeatedly.
func TestPullFillsTheDisk(t *testing.T) {
	t.Parallel()
	n, daemon := crammed(t)
	before := story.Look(t, n, story.GrainFile)
	n.Registry.Publish("demo/velum", "4.0.0-rev2-build1.1", node.Image{
		Layers: []node.Layer{{Seed: 3, Size: 2 << 20}, {Seed: 4, Size: 100 << 20, Zeros: true}},
	})
	n.Registry.Forget()
	s := story.Check(t, n)
	pulled := n.Registry.Requests().Count(http.MethodGet, node.Blob)
	assert.Less(t, pulled, 5, "config, for its date and for the pull, and two layers")
	const figures = `needs \d\.\d MB to pull and \d+\.\d MB to unpack with \d\d\.\d MB of \d+\.\d MB kept free, ` +
		`but only \d+\.\d MB are free on /`
	heldForRoom(t, s, figures)
	before.Unchanged(t, n, story.GrainFile)
	for range 3 {
		s, asked := lookAgain(t, n)
		heldForRoom(t, s, figures)
		assert.Empty(t, asked)
	}
	n.Registry.Forget()
	heldForRoom(t, story.Check(t, n), figures)
	// A poll computes its needs again, for which the config is read, and then there is no space.
	assert.Less(t, n.Registry.Requests().Bytes(node.Blob), int64(64<<10), "pulled again")

	// The space of the pull is free again: the next release needs nearly all of it.
	wanted := n.Registry.Publish("demo/velum", "4.0.0-rev2-build1.2", node.Image{
		Layers: []node.Layer{{Seed: 5, Size: 12 << 20}},
	})
	s = story.Check(t, n)
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Contains(t, story.Pins(t, n), wanted)
	assert.Equal(t, 0, daemon.Stop().Code)
}
