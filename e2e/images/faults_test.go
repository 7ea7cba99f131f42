// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	containerdimages "github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentnode "github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/node/images"
)

// testStageRepairs removes what CRI's discard_unpacked_layers or a damaged store removes, and stages again.
func testStageRepairs(t *testing.T, r *imagesRig) {
	release := r.publish("repairs/velum", "4.0.0-rev1-build1.1", node.Image{})
	r.stage(release)
	image, err := r.client.GetImage(t.Context(), r.pin(release).Name)
	require.NoError(t, err)
	manifest, err := containerdimages.Manifest(t.Context(), r.client.ContentStore(), image.Target(), platforms.Default())
	require.NoError(t, err)
	require.NoError(t, r.client.ContentStore().Delete(t.Context(), manifest.Layers[1].Digest))
	r.collect()
	assert.False(t, r.pin(release).Complete, "without a layer")

	requests := r.stage(release)
	assert.Equal(t, 1, requests.Count(http.MethodGet, node.Blob))
	r.assertContent(release)

	layers, err := image.RootFS(t.Context())
	require.NoError(t, err)
	top := chainID(layers)
	require.NoError(t, r.client.SnapshotService("overlayfs").Remove(t.Context(), top.String()))
	assert.False(t, r.pin(release).Complete, "without its snapshot")
	requests = r.stage(release)
	assert.Zero(t, requests.Count(http.MethodGet, node.Blob))
	r.assertContent(release)
}

// testStageWithoutFiles damages the files of listed blobs, as a power cut does, and stages again.
func testStageWithoutFiles(t *testing.T, r *imagesRig) {
	release := r.publish("powercut/velum", "4.0.0-rev1-build1.1", node.Image{})
	r.stage(release)
	image, err := r.client.GetImage(t.Context(), r.pin(release).Name)
	require.NoError(t, err)
	manifest, err := containerdimages.Manifest(t.Context(), r.client.ContentStore(), image.Target(), platforms.Default())
	require.NoError(t, err)
	layers, err := image.RootFS(t.Context())
	require.NoError(t, err)
	for of, d := range map[string]digest.Digest{
		"manifest": release.Digest, "config": manifest.Config.Digest, "layer": manifest.Layers[1].Digest,
	} {
		file := filepath.Join(r.Dir, "containerd/root/io.containerd.content.v1.content/blobs/sha256", d.Encoded())
		for how, damage := range map[string]func() error{
			"no file":   func() error { return os.Remove(file) },
			"truncated": func() error { return os.Truncate(file, 3) },
			"zeros": func() error {
				info, err := os.Stat(file)
				return errors.Join(err, os.WriteFile(file, make([]byte, info.Size()), 0o600))
			},
		} {
			require.NoError(t, damage(), "%s: %s", of, how)
			if of == "layer" { // an unpacked one is not needed
				require.NoError(t, r.client.SnapshotService("overlayfs").Remove(t.Context(), chainID(layers).String()))
			}
			r.store = r.open() // the agent starts after a boot
			broken, err := images.AskBroken(t.Context(), r.Containerd.Socket, images.DefaultNamespace)
			require.NoError(t, err)
			assert.Contains(t, broken, images.BrokenBlob{
				Image: release.Repository + "@" + release.Digest.String(), Digest: d,
			}, "%s: %s", of, how)
			assert.False(t, r.pin(release).Complete, "%s: %s", of, how)
			require.NoError(t, r.store.Stage(t.Context(), release, agentnode.StageOptions{}), "%s: %s", of, how)
			r.assertContent(release)
			broken, err = images.AskBroken(t.Context(), r.Containerd.Socket, images.DefaultNamespace)
			require.NoError(t, err)
			assert.Empty(t, broken, "%s: %s", of, how)
		}
	}
}

// chainID computes a ChainID (OCI image specification, section Layer ChainID).
func chainID(layers []digest.Digest) digest.Digest {
	chain := layers[0]
	for _, layer := range layers[1:] {
		chain = digest.FromString(chain.String() + " " + layer.String())
	}
	return chain
}

func testStageWrongPlatform(t *testing.T, r *imagesRig) {
	for name, platforms := range map[string][]string{"manifest": {"linux/arm64"}, "index": {"linux/arm64", "linux/s390x"}} {
		rel := r.publish("wrong/"+name, "4.0.0-rev1-build1.1", node.Image{Platforms: platforms})
		r.Registry.Forget()
		err := r.store.Stage(t.Context(), rel, agentnode.StageOptions{})
		require.ErrorIs(t, err, release.ErrPlatform, name)
		assert.NotErrorIs(t, err, release.ErrNotFound, name)
		assert.ErrorContains(t, err, "want linux/amd64", name)
		assert.Empty(t, r.records(rel.Repository), name)
		assert.Less(t, r.Registry.Requests().Bytes(node.Blob), int64(64<<10), "a layer was fetched")
	}
}

func testStageVanished(t *testing.T, r *imagesRig) {
	rel := r.publish("vanished/velum", "4.0.0-rev1-build1.1", node.Image{})
	for _, vanishes := range []struct{ method, path string }{
		{http.MethodGet, "/manifests/"}, // between HEAD and GET
		{http.MethodGet, "/blobs/"},
		{"", "/manifests/"},
	} {
		r.Registry.Intercept(func(w http.ResponseWriter, q *http.Request) bool {
			if vanishes.method != "" && q.Method != vanishes.method || !strings.Contains(q.URL.Path, vanishes.path) {
				return false
			}
			http.NotFound(w, q)
			return true
		})
		err := r.store.Stage(t.Context(), rel, agentnode.StageOptions{})
		require.ErrorIs(t, err, release.ErrNotFound, vanishes)
		assert.ErrorContains(t, err, rel.Repository+"@"+rel.Digest.String())
		assert.Empty(t, r.records(rel.Repository))
	}
	r.Registry.Intercept(nil)
	r.Registry.Delete("vanished/velum", rel.Digest.String())
	require.ErrorIs(t, r.store.Stage(t.Context(), rel, agentnode.StageOptions{}), release.ErrNotFound)

	r.Registry.Intercept(node.Fail(node.Manifest, http.StatusInternalServerError))
	err := r.store.Stage(t.Context(), rel, agentnode.StageOptions{})
	require.ErrorContains(t, err, "500")
	assert.NotErrorIs(t, err, release.ErrNotFound)
}

// hold blocks all requests for blobs. reached is closed at the first of them; let unblocks all.
func (r *imagesRig) hold() (reached <-chan struct{}, let func()) {
	first, gate := make(chan struct{}), make(chan struct{})
	var once, again sync.Once
	r.Registry.Intercept(func(_ http.ResponseWriter, q *http.Request) bool {
		if strings.Contains(q.URL.Path, "/blobs/") {
			once.Do(func() { close(first) })
			select {
			case <-gate:
			case <-q.Context().Done():
			}
		}
		return false
	})
	let = func() { again.Do(func() { close(gate) }) }
	r.t.Cleanup(let)
	return first, let
}

func testStageCancelled(t *testing.T, r *imagesRig) {
	release := r.publish("cancelled/velum", "4.0.0-rev1-build1.1", node.Image{Layers: r.layers(3)})
	reached, let := r.hold()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.store.Stage(ctx, release, agentnode.StageOptions{}) }()
	<-reached
	assert.ErrorContains(t, r.store.Stage(t.Context(), release, agentnode.StageOptions{}), "is already being staged")
	assert.Len(t, r.leases(), 1)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	let()
	assert.Empty(t, r.records(release.Repository))
	assert.Empty(t, r.leases())

	r.stage(release)
	r.assertContent(release)
}

func testStageContainerdKilled(t *testing.T, r *imagesRig) {
	release := r.publish("killed/velum", "4.0.0-rev1-build1.1", node.Image{Layers: r.layers(3)})
	reached, let := r.hold()
	ended := make(chan error, 1)
	go func() { ended <- r.store.Stage(t.Context(), release, agentnode.StageOptions{}) }()
	<-reached
	r.Containerd.Kill()
	let()
	r.Containerd.Start()
	require.NoError(t, <-ended)
	r.awaitClient()
	assert.Empty(t, r.leases())
	r.assertContent(release)
}

func testContainerdAway(t *testing.T, r *imagesRig) {
	release := r.publish("away/velum", "4.0.0-rev1-build1.1", node.Image{})
	r.Containerd.Kill() // the socket file stays
	calls := map[string]func() error{
		"held":  func() error { _, err := r.store.Held(t.Context()); return err },
		"stage": func() error { return r.store.Stage(t.Context(), release, agentnode.StageOptions{}) },
		"pins":  func() error { return r.store.Pins(t.Context(), nil) },
	}
	for name, call := range calls {
		assert.EqualError(t, call(), "containerd "+r.Containerd.Socket+": connect: connection refused", name)
	}
	r.Containerd.Start()
	node.Eventually(t, "client", story.Ready, func() error { _, err := r.client.Version(t.Context()); return err })
	for name, call := range calls {
		assert.NoError(t, call(), name)
	}
}

func testStageLeftLeases(t *testing.T, r *imagesRig) {
	release := r.publish("leases/velum", "4.0.0-rev1-build1.1", node.Image{})
	service := r.client.LeasesService()
	_, err := service.Create(t.Context(), leases.WithRandomID(),
		leases.WithLabel("org.opensuse.image-update-agent/stage", release.Repository+"@"+release.Digest.String()))
	require.NoError(t, err)
	foreign, err := service.Create(t.Context(), leases.WithRandomID(), leases.WithLabel("somebody", "else"))
	require.NoError(t, err)
	reached, let := r.hold()
	ended := make(chan error, 1)
	go func() { ended <- r.store.Stage(t.Context(), release, agentnode.StageOptions{}) }()
	<-reached
	var expiring int
	for _, lease := range r.leases() {
		if _, ok := lease.Labels["containerd.io/gc.expire"]; ok {
			expiring++
		}
	}
	assert.Equal(t, 1, expiring, "our lease expires by itself")
	let()
	require.NoError(t, <-ended)
	assert.Empty(t, r.leases())
	require.NoError(t, service.Delete(t.Context(), foreign), "a foreign lease is gone")
}

// testStageUndo makes a pull fail whose long tag the store already has with another digest.
func testStageUndo(t *testing.T, r *imagesRig) {
	old := r.publish("undo/velum", "4.0.0-rev1-build1.1", node.Image{})
	r.stage(old)
	before := r.records(old.Repository)
	next := r.publish("undo/velum", "4.0.0-rev1-build1.1", node.Image{})
	r.Registry.Intercept(node.Fail(node.Blob, http.StatusServiceUnavailable))
	require.Error(t, r.store.Stage(t.Context(), next, agentnode.StageOptions{}))
	assert.Equal(t, before, r.records(old.Repository))
}
