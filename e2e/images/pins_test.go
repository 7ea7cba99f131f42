// SPDX-License-Identifier: Apache-2.0

package images

import (
	"net/http"
	"testing"

	containerdimages "github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

func testPullAfterStage(t *testing.T, r *imagesRig) {
	release := r.publish("pull/velum", "4.0.0-rev1-build1.1", node.Image{Layers: r.layers(3)})
	r.stage(release)
	r.Registry.Forget()
	floating := release.Repository + ":" + release.Tag
	id, err := r.cri.Pull(floating)
	require.NoError(t, err)
	requests := r.Registry.Requests()
	require.Len(t, requests, 1)
	assert.Equal(t, http.MethodHead, requests[0].Method)
	assert.Equal(t, node.Manifest, requests[0].Kind)
	pin := r.pin(release)
	assert.True(t, pin.Complete)
	assert.Equal(t, pin.Config.String(), id)
	record, err := r.client.ImageService().Get(t.Context(), pin.Name)
	require.NoError(t, err)
	assert.Equal(t, "pinned", record.Labels["io.cri-containerd.pinned"])

	_, err = r.cri.Pull(release.Repository + ":" + release.Long)
	require.NoError(t, err)
	long, err := r.client.ImageService().Get(t.Context(), release.Repository+":"+release.Long)
	require.NoError(t, err)
	assert.NotContains(t, long.Labels, "io.cri-containerd.pinned", "the reason for a record of our own")
	r.listed(pin.Name)
	answer, err := r.cri.Images.ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: floating}})
	require.NoError(t, err)
	assert.Equal(t, r.Containerd.Version != node.Containerd16, answer.GetImage().GetPinned(), "pinned for kubelet")
}

func testFloatingUntouched(t *testing.T, r *imagesRig) {
	old := r.publish("floating/velum", "4.0.0-rev1-build1.1", node.Image{})
	floating := old.Repository + ":" + old.Tag
	_, err := r.cri.Pull(floating)
	require.NoError(t, err)
	before, err := r.client.ImageService().Get(t.Context(), floating)
	require.NoError(t, err)
	next := r.publish("floating/velum", "4.0.0-rev1-build1.2", node.Image{})
	r.stage(next)
	after, err := r.client.ImageService().Get(t.Context(), floating)
	require.NoError(t, err)
	assert.Equal(t, before, after)
	assert.Equal(t, old.Digest, after.Target.Digest)
	assert.NotEqual(t, r.listed(floating), r.listed(next.Repository+":"+next.Long))
}

func testStageNewer(t *testing.T, r *imagesRig) {
	old := r.publish("newer/velum", "4.0.0-rev1-build1.1", node.Image{})
	r.stage(old)
	next := r.publish("newer/velum", "4.0.0-rev1-build1.1", node.Image{}) // the long tag moved
	require.NotEqual(t, old.Digest, next.Digest)
	r.stage(next)
	assert.Equal(t, next.Digest, r.records(next.Repository)[next.Repository+":"+next.Long])
	assert.True(t, r.pin(old).Complete, "the old one is pinned until Pins says otherwise")
}

func testStagePulledByCRI(t *testing.T, r *imagesRig) {
	release := r.publish("bycri/velum", "4.0.0-rev1-build1.1", node.Image{})
	_, err := r.cri.Pull(release.Repository + ":" + release.Tag)
	require.NoError(t, err)
	assert.Empty(t, r.stage(release))
	assert.True(t, r.pin(release).Complete)
}

func testPins(t *testing.T, r *imagesRig) {
	kept := r.publish("pins/kept", "4.0.0-rev1-build1.1", node.Image{})
	dropped := r.publish("pins/dropped", "4.0.0-rev1-build1.1", node.Image{})
	running := r.publish("pins/running", "4.0.0-rev1-build1.1", node.Image{})
	r.stage(kept)
	r.stage(dropped)
	_, err := r.cri.Pull(running.Repository + ":" + running.Tag)
	require.NoError(t, err)
	before, err := r.client.ImageService().Get(t.Context(), r.pin(kept).Name)
	require.NoError(t, err)
	records := r.records(dropped.Repository)
	delete(records, r.pin(dropped).Name)

	require.NoError(t, r.store.Pins(t.Context(), []release.Pin{
		{Repository: kept.Repository, Digest: kept.Digest},
		{Repository: running.Repository, Digest: running.Digest},
		{Repository: running.Repository, Digest: digest.FromString("not here")},
	}))
	after, err := r.client.ImageService().Get(t.Context(), before.Name)
	require.NoError(t, err)
	assert.Equal(t, before, after, "a pin that stays was written")
	assert.Empty(t, r.pin(dropped))
	assert.Equal(t, records, r.records(dropped.Repository), "only the pin goes")
	assert.True(t, r.pin(running).Complete)
}

func testPinsForeign(t *testing.T, r *imagesRig) {
	release := r.publish("foreign/velum", "4.0.0-rev1-build1.1", node.Image{})
	r.stage(release)
	ours, err := r.client.ImageService().Get(t.Context(), r.pin(release).Name)
	require.NoError(t, err)
	labels := ours.Labels
	for _, foreign := range []containerdimages.Image{
		{Name: story.PinHost + "somebody/else:1", Target: ours.Target},
		{Name: story.PinHost + "with/our-label:1", Target: ours.Target, Labels: labels},
		{Name: release.Repository + ":mine", Target: ours.Target, Labels: labels},
	} {
		_, err := r.client.ImageService().Create(t.Context(), foreign)
		require.NoError(t, err)
		r.listed(foreign.Name) // CRI has made what it makes of a new record
	}
	require.NoError(t, r.store.Pins(t.Context(), nil))
	for _, name := range []string{story.PinHost + "somebody/else:1", story.PinHost + "with/our-label:1", release.Repository + ":mine"} {
		_, err := r.client.ImageService().Get(t.Context(), name)
		assert.NoError(t, err, name)
	}
	_, err = r.client.ImageService().Get(t.Context(), ours.Name)
	assert.Error(t, err, "our own pin stayed")
}

// testPinHoldsContent removes all other names and makes containerd collect its garbage.
func testPinHoldsContent(t *testing.T, r *imagesRig) {
	release := r.publish("holds/velum", "4.0.0-rev1-build1.1", node.Image{})
	r.stage(release)
	for name := range r.records(release.Repository + ":") {
		require.NoError(t, r.client.ImageService().Delete(t.Context(), name, containerdimages.SynchronousDelete()))
	}
	r.assertContent(release)
	require.NoError(t, r.store.Pins(t.Context(), nil))
	r.collect()
	_, err := r.client.ContentStore().Info(t.Context(), release.Digest)
	assert.Error(t, err, "nothing held it any more")
}
