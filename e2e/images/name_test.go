// SPDX-License-Identifier: Apache-2.0

package images

import (
	"net/http"
	"sync"
	"testing"

	containerdimages "github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	agentnode "github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/e2e/node"
)

func pinOf(rel release.Release) release.Pin {
	return release.Pin{Repository: rel.Repository, Digest: rel.Digest}
}

// byDigest returns the names by digest that a pod manifest may have for a release: a tag in front of the digest makes
// no difference.
func byDigest(release release.Release) []string {
	at := "@" + release.Digest.String()
	return []string{release.Repository + at, release.Repository + ":" + release.Tag + at, release.Repository + ":any.tag" + at}
}

// absent asserts that CRI finds none of the names.
func (r *imagesRig) absent(names ...string) {
	r.t.Helper()
	for _, name := range names {
		answer, err := r.cri.Images.ImageStatus(r.t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
		require.NoError(r.t, err)
		assert.Nil(r.t, answer.GetImage(), name)
	}
}

// testName gives a release that the node has, and whose registry is gone, the name that kubelet looks for.
func testName(t *testing.T, r *imagesRig) {
	release := r.publish("name/velum", "4.0.0-rev1-build1.1", node.Image{Layers: r.layers(2)})
	r.stage(release)
	id := r.pin(release).Config
	assert.Equal(t, id, r.listed(release.Repository+":"+release.Long))
	r.absent(byDigest(release)...)

	r.Registry.Intercept(node.Fail(node.Manifest, http.StatusServiceUnavailable))
	defer r.Registry.Intercept(nil)
	r.Registry.Forget()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { assert.NoError(t, r.store.Name(t.Context(), pinOf(release))) })
	}
	all.Wait()
	assert.Empty(t, r.Registry.Requests())
	for _, name := range byDigest(release) {
		assert.Equal(t, id, r.listed(name), name)
	}
	_, err := r.cri.Pull(byDigest(release)[1])
	require.Error(t, err, "kubelet's Always; with IfNotPresent it does not pull")
	assert.Equal(t, id, r.listed(byDigest(release)[1]), "it stays all the same")
	answer, err := r.cri.Images.ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: id.String()}})
	require.NoError(t, err)
	assert.Contains(t, answer.GetImage().GetRepoDigests(), byDigest(release)[0])
	r.assertNoConfigRecord(release)

	r.testUnname(t, release)
}

// testUnname removes the name and asserts that nothing else is removed.
func (r *imagesRig) testUnname(t *testing.T, release release.Release) {
	t.Helper()
	long := release.Repository + ":" + release.Long
	named := r.stagedRecords(release)
	require.Len(t, named, 2)
	assert.Equal(t, map[string]bool{long: true, byDigest(release)[0]: true}, map[string]bool{named[0].Name: true, named[1].Name: true})
	for _, n := range named {
		if n.Name != long {
			require.NoError(t, r.store.Prune(t.Context(), []agentnode.HeldImage{n}))
		}
	}
	r.unlisted(byDigest(release)[0])
	r.absent(byDigest(release)...)
	assert.Equal(t, r.pin(release).Config, r.listed(long))
	r.assertContent(release)
}

// testNameAlone checks a release that only the name holds.
func testNameAlone(t *testing.T, r *imagesRig) {
	release := r.publish("namealone/velum", "4.0.0-rev1-build1.1", node.Image{})
	r.stage(release)
	id := r.pin(release).Config
	require.NoError(t, r.store.Name(t.Context(), pinOf(release)))
	require.NoError(t, r.store.Pins(t.Context(), nil))
	for _, h := range r.stagedRecords(release) {
		if h.Name == release.Repository+":"+release.Long {
			require.NoError(t, r.store.Prune(t.Context(), []agentnode.HeldImage{h}))
		}
	}
	r.collect()
	assert.Equal(t, id, r.listed(byDigest(release)[1]))
	assert.Empty(t, r.stage(release), "complete")
}

// testNamePulled checks that the agent leaves the names by digest alone that CRI made with its own pulls.
func testNamePulled(t *testing.T, r *imagesRig) {
	release := r.publish("namepulled/velum", "4.0.0-rev1-build1.1", node.Image{})
	_, err := r.cri.Pull(release.Repository + ":" + release.Tag)
	require.NoError(t, err)
	r.listed(byDigest(release)[0])
	before, err := r.client.ImageService().Get(t.Context(), byDigest(release)[0])
	require.NoError(t, err)
	require.NoError(t, r.store.Name(t.Context(), pinOf(release)))
	after, err := r.client.ImageService().Get(t.Context(), byDigest(release)[0])
	require.NoError(t, err)
	assert.Equal(t, before, after)
	assert.Empty(t, r.stagedRecords(release))

	// The other order: the agent made the name first, and CRI pulled it later.
	next := r.publish("namepulled/velum", "4.0.0-rev1-build1.2", node.Image{})
	r.stage(next)
	require.NoError(t, r.store.Name(t.Context(), pinOf(next)))
	_, err = r.cri.Pull(next.Repository + ":" + next.Tag)
	require.NoError(t, err)
	assert.Len(t, r.stagedRecords(next), 2, "a pull of another name")
	_, err = r.cri.Pull(byDigest(next)[1])
	require.NoError(t, err)
	assert.Len(t, r.stagedRecords(next), 1, "a pull of this very name makes it CRI's")
	assert.Equal(t, r.pin(next).Config, r.listed(byDigest(next)[1]))
	require.NoError(t, r.store.Name(t.Context(), pinOf(next)))
}

func testNameIncomplete(t *testing.T, r *imagesRig) {
	rel := r.publish("nameless/velum", "4.0.0-rev1-build1.1", node.Image{})
	require.ErrorIs(t, r.store.Name(t.Context(), pinOf(rel)), release.ErrNotFound, "not here")
	foreign := r.publish("nameless/foreign", "4.0.0-rev1-build1.1", node.Image{Platforms: []string{"linux/s390x"}})
	require.ErrorIs(t, r.store.Name(t.Context(), pinOf(foreign)), release.ErrNotFound)

	r.stage(rel)
	r.lose(rel)
	err := r.store.Name(t.Context(), pinOf(rel))
	require.ErrorIs(t, err, release.ErrNotFound)
	assert.EqualError(t, err, "containerd "+r.Containerd.Socket+": "+byDigest(rel)[0]+": not found: not complete for "+
		platforms.Format(platforms.Normalize(platforms.DefaultSpec())))
	assert.NotContains(t, r.records(rel.Repository), byDigest(rel)[0])
	r.absent(byDigest(rel)...)

	r.stage(rel)
	require.NoError(t, r.store.Name(t.Context(), pinOf(rel)))
	assert.Equal(t, r.pin(rel).Config, r.listed(byDigest(rel)[1]))
}

// lose removes the release's own layer from the node.
func (r *imagesRig) lose(release release.Release) {
	r.t.Helper()
	pin, err := r.client.ImageService().Get(r.t.Context(), r.pin(release).Name)
	require.NoError(r.t, err)
	store := r.client.ContentStore()
	manifest, err := containerdimages.Manifest(r.t.Context(), store, pin.Target, platforms.Default())
	require.NoError(r.t, err)
	require.NoError(r.t, store.Delete(r.t.Context(), manifest.Layers[1].Digest))
}
