// SPDX-License-Identifier: Apache-2.0

package images

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	agentnode "github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

func testStageFresh(t *testing.T, r *imagesRig) {
	release := r.publish("fresh/velum", "4.0.0-rev1-build1.1", node.Image{Layers: r.layers(3)})
	var seen []status.Progress
	require.NoError(t, r.store.Stage(t.Context(), release, agentnode.StageOptions{Progress: func(p status.Progress) { seen = append(seen, p) }}))

	records := r.records(release.Repository)
	long, pin := release.Repository+":"+release.Long, r.pin(release)
	assert.True(t, strings.HasPrefix(pin.Name, story.PinHost), pin.Name)
	assert.Equal(t, map[string]digest.Digest{long: release.Digest, pin.Name: release.Digest}, records)
	r.assertContent(release)

	assert.Equal(t, status.Progress{Reference: long, Phase: "resolving"}, seen[0])
	last := seen[len(seen)-1]
	assert.Equal(t, "done", last.Phase)
	assert.Equal(t, last.Total, last.Done)
	assert.Greater(t, last.Total, int64(3*512<<10))

	require.NotEmpty(t, pin.Config)
	assert.Equal(t, pin.Config, r.listed(long))
	assert.Equal(t, pin.Config, r.listed(pin.Name))
	r.assertNoConfigRecord(release)
	answer, err := r.cri.Images.ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: long}})
	require.NoError(t, err)
	// containerd 1.6 does not know pins.
	assert.Equal(t, r.Containerd.Version != node.Containerd16, answer.GetImage().GetPinned(), "pinned")
}

// assertNoConfigRecord asserts that CRI made no record for the config digest, which it does for an unmanaged image:
// that record would hold the content after our own records are gone.
func (r *imagesRig) assertNoConfigRecord(release release.Release) {
	r.t.Helper()
	id := r.listed(release.Repository + ":" + release.Long) // CRI has processed the record
	assert.NotContains(r.t, r.records("sha256:"), id.String())
}

func testStageAgain(t *testing.T, r *imagesRig) {
	release := r.publish("again/velum", "4.0.0-rev1-build1.1", node.Image{})
	requests := r.stage(release)
	assert.Equal(t, 1, requests.Count(http.MethodHead, node.Manifest))
	assert.Equal(t, 1, requests.Count(http.MethodGet, node.Manifest))
	assert.Equal(t, 2, requests.Count(http.MethodGet, node.Blob), "config and its own layer")
	before, err := r.client.ImageService().Get(t.Context(), r.pin(release).Name)
	require.NoError(t, err)

	assert.Empty(t, r.stage(release))
	after, err := r.client.ImageService().Get(t.Context(), r.pin(release).Name)
	require.NoError(t, err)
	assert.Equal(t, before, after, "the pin was written again")
	var seen []status.Progress
	require.NoError(t, r.store.Stage(t.Context(), release, agentnode.StageOptions{Progress: func(p status.Progress) { seen = append(seen, p) }}))
	require.Len(t, seen, 1)
	assert.Equal(t, "done", seen[0].Phase)
}

func testStageRenames(t *testing.T, r *imagesRig) {
	release := r.publish("renames/velum", "4.0.0-rev1-build1.1", node.Image{})
	r.stage(release)
	records := r.records(release.Repository)
	for name := range records {
		require.NoError(t, r.client.ImageService().Delete(t.Context(), name))
		assert.Empty(t, r.stage(release), name)
		assert.Equal(t, records, r.records(release.Repository))
		r.assertNoConfigRecord(release)
	}
}

func testStageShared(t *testing.T, r *imagesRig) {
	layers := r.layers(3)
	first := r.publish("shared/velum", "4.0.0-rev1-build1.1", node.Image{Layers: layers[:2]})
	second := r.publish("shared/mariadb", "10.0-rev1-build1.1", node.Image{Layers: []node.Layer{layers[0], layers[2]}})
	r.stage(first)
	assert.Equal(t, 2, r.stage(second).Count(http.MethodGet, node.Blob), "the config and its own layer")
}

func testStageParallel(t *testing.T, r *imagesRig) {
	layers := r.layers(4)
	var releases []release.Release
	for i, name := range []string{"velum", "mariadb", "openldap"} {
		releases = append(releases, r.publish("parallel/"+name, "1.0-rev1-build1.1", node.Image{Layers: []node.Layer{layers[0], layers[i+1]}}))
	}
	r.Registry.Forget()
	var group sync.WaitGroup
	for _, release := range releases {
		group.Go(func() { assert.NoError(t, r.store.Stage(t.Context(), release, agentnode.StageOptions{})) })
	}
	group.Wait()
	var fetched []string
	for _, request := range r.Registry.Requests() {
		if request.Method == http.MethodGet && request.Kind == node.Blob {
			fetched = append(fetched, request.Reference)
		}
	}
	slices.Sort(fetched)
	assert.Equal(t, slices.Compact(slices.Clone(fetched)), fetched, "a blob was fetched twice")
	for _, release := range releases {
		r.assertContent(release)
	}
}

func testStageByDigest(t *testing.T, r *imagesRig) {
	release := r.publish("bydigest/velum", "4.0.0-rev1-build1.1", node.Image{})
	release.Long = ""
	r.stage(release)
	name := release.Repository + "@" + release.Digest.String()
	pin := r.pin(release)
	assert.Equal(t, map[string]digest.Digest{name: release.Digest, pin.Name: release.Digest}, r.records(release.Repository))
	assert.Equal(t, pin.Config, r.listed(name))
	assert.Empty(t, r.stage(release))
}

func testStageFollowedLong(t *testing.T, r *imagesRig) {
	release := r.publish("followed/velum", "4.0.0-rev1-build1.1", node.Image{})
	release.Tag = release.Long
	r.stage(release)
	assert.NotContains(t, r.records(release.Repository), release.Repository+":"+release.Long)
	assert.True(t, r.pin(release).Complete)
}

func testStageIndex(t *testing.T, r *imagesRig) {
	for _, oci := range []bool{false, true} {
		release := r.publish("index/velum", "4.0.0-rev1-build1.1", node.Image{
			OCI: oci, Platforms: []string{"linux/arm64", "linux/s390x", "linux/amd64"},
		})
		requests := r.stage(release)
		assert.Equal(t, 2, requests.Count(http.MethodGet, node.Manifest), "the index and one manifest")
		assert.Equal(t, 2, requests.Count(http.MethodGet, node.Blob), "one config and one layer")
		r.assertContent(release)
		assert.Equal(t, r.pin(release).Config, r.listed(release.Repository+":"+release.Long))
		assert.Empty(t, r.stage(release))
	}
}
