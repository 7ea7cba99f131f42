// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	agentnode "github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/node/pods"
)

func TestPods(t *testing.T) {
	t.Parallel()
	for _, version := range node.Containerds() {
		t.Run("containerd "+string(version), func(t *testing.T) {
			t.Parallel()
			PodsConformance(t, version)
		})
	}
}

// grace is the time that a container may take to end.
const grace = 5 * time.Second

// PodsConformance checks the promises of package pods against the CRI of a real containerd.
func PodsConformance(t *testing.T, version node.Version) {
	r := newPodsRig(t, version)
	for name, test := range map[string]func(*testing.T, *podsRig){
		"static pods only":        testContainersStatic,
		"newest attempt":          testContainersNewest,
		"which image runs":        testContainersImage,
		"stop a container":        testStop,
		"clear a pod":             testClear,
		"staged name is listed":   testListsStaged,
		"pull":                    testPull,
		"containerd away":         testRuntimeAway,
		"image of a running gone": testContainersImageGone,
		"images in use":           testContainersUsed,
		"pruned while it runs":    testPrunedInUse,
		"where images are":        testImageFilesystem,
		"sandbox":                 testSandbox,
		"sandbox with an address": testSandboxAddress,
	} {
		t.Run(name, func(t *testing.T) {
			r.t = t
			test(t, r)
		})
	}
}

// podsRig is a node without kubelet: the test makes sandboxes and containers as kubelet does.
type podsRig struct {
	*imagesRig
	runtime *pods.Runtime
}

func newPodsRig(t *testing.T, version node.Version) *podsRig {
	return newPodsRigWith(t, node.Options{Containerd: version})
}

func newPodsRigWith(t *testing.T, options node.Options) *podsRig {
	r := &podsRig{imagesRig: newImagesRigWith(t, options)}
	var err error
	r.runtime, err = pods.New(pods.Options{Socket: r.Containerd.Socket})
	require.NoError(t, err)
	return r
}

// sandbox runs a sandbox as kubelet does for a pod that it read from source.
func (r *podsRig) sandbox(pod, source string) (string, *cri.PodSandboxConfig) {
	r.t.Helper()
	return r.sandboxIn(cri.NamespaceMode_NODE, pod, source)
}

func (r *podsRig) sandboxIn(network cri.NamespaceMode, pod, source string) (string, *cri.PodSandboxConfig) {
	r.t.Helper()
	config := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: pod, Namespace: "kube-system", Uid: "uid-" + pod},
		LogDirectory: r.Path("var/log"),
		Labels: map[string]string{
			"io.kubernetes.pod.name": pod, "io.kubernetes.pod.namespace": "kube-system", "io.kubernetes.pod.uid": "uid-" + pod,
		},
		Annotations: map[string]string{"kubernetes.io/config.source": source, "kubernetes.io/config.hash": "uid-" + pod},
		Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Network: network},
		}},
	}
	answer, err := r.cri.Runtime.RunPodSandbox(r.t.Context(), &cri.RunPodSandboxRequest{Config: config})
	require.NoError(r.t, err)
	r.t.Cleanup(func() {
		ctx := context.WithoutCancel(r.t.Context()) // the test's own context is cancelled by now
		_, err := r.cri.Runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: answer.GetPodSandboxId()})
		assert.NoError(r.t, err)
		_, err = r.cri.Runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: answer.GetPodSandboxId()})
		assert.NoError(r.t, err)
	})
	return answer.GetPodSandboxId(), config
}

// start creates and starts a container as kubelet does.
func (r *podsRig) start(sandbox string, in *cri.PodSandboxConfig, name, image string, attempt uint32) string {
	r.t.Helper()
	labels := map[string]string{"io.kubernetes.container.name": name}
	maps.Copy(labels, in.GetLabels())
	created, err := r.cri.Runtime.CreateContainer(r.t.Context(), &cri.CreateContainerRequest{
		PodSandboxId: sandbox, SandboxConfig: in,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: name, Attempt: attempt},
			Image:    &cri.ImageSpec{Image: image},
			Args:     []string{fmt.Sprintf("127.0.0.1:%d", r.FreePort())},
			Labels:   labels, LogPath: name + ".log",
			Linux: &cri.LinuxContainerConfig{},
		},
	})
	require.NoError(r.t, err)
	_, err = r.cri.Runtime.StartContainer(r.t.Context(), &cri.StartContainerRequest{ContainerId: created.GetContainerId()})
	require.NoError(r.t, err)
	return created.GetContainerId()
}

// of returns the containers of a pod.
func (r *podsRig) of(pod string) []agentnode.Container {
	r.t.Helper()
	all, _, err := r.runtime.Containers(r.t.Context())
	require.NoError(r.t, err)
	var found []agentnode.Container
	for _, c := range all {
		if c.Pod == pod {
			found = append(found, c)
		}
	}
	return found
}

// staged stages a release and returns it with the image's id and the name that a container is started by.
func (r *podsRig) staged(repository string) (release.Release, digest.Digest, string) {
	r.t.Helper()
	release := r.publish(repository, "4.0.0-rev1-build1.1", node.Image{})
	r.stage(release)
	r.listed(r.pin(release).Name) // the last record
	name := release.Repository + ":" + release.Long
	return release, r.listed(name), name
}

func testContainersStatic(t *testing.T, r *podsRig) {
	_, _, image := r.staged("static/velum")
	sandbox, config := r.sandbox("static-node1", "file")
	began := time.Now()
	id := r.start(sandbox, config, "velum", image, 0)
	other, config := r.sandbox("from-api", "api")
	r.start(other, config, "app", image, 0)

	found := r.of("static-node1")
	require.Len(t, found, 1)
	assert.Equal(t, id, found[0].ID)
	assert.Equal(t, sandbox, found[0].Sandbox)
	assert.Equal(t, "kube-system", found[0].Namespace)
	assert.Equal(t, "velum", found[0].Name)
	assert.True(t, found[0].Running)
	assert.WithinRange(t, found[0].StartedAt, began, time.Now())
	assert.Empty(t, r.of("from-api"))
}

func testContainersNewest(t *testing.T, r *podsRig) {
	_, _, image := r.staged("newest/velum")
	sandbox, config := r.sandbox("newest-node1", "file")
	first := r.start(sandbox, config, "velum", image, 0)
	_, err := r.cri.Runtime.StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: first})
	require.NoError(t, err)
	found := r.of("newest-node1")
	require.Len(t, found, 1)
	assert.Equal(t, first, found[0].ID)
	assert.False(t, found[0].Running, "the dead one, while there is no other")

	second := r.start(sandbox, config, "velum", image, 1)
	found = r.of("newest-node1")
	require.Len(t, found, 1)
	assert.Equal(t, second, found[0].ID)
	assert.EqualValues(t, 1, found[0].Restarts)
	assert.True(t, found[0].Running)
}

func testContainersImage(t *testing.T, r *podsRig) {
	release, config, image := r.staged("which/velum")
	sandbox, pod := r.sandbox("which-node1", "file")
	r.start(sandbox, pod, "velum", image, 0)
	found := r.of("which-node1")
	require.Len(t, found, 1)
	assert.Equal(t, config, found[0].Image)
	assert.Equal(t, r.pin(release).Config, found[0].Image)

	_, err := r.cri.Pull(release.Repository + ":" + release.Tag) // as kubelet does, so that CRI knows the digest
	require.NoError(t, err)
	assert.Contains(t, r.of("which-node1")[0].Digests, release.Digest)
	r.publish("which/velum", "4.0.0-rev1-build1.2", node.Image{})
	_, err = r.cri.Pull(release.Repository + ":" + release.Tag)
	require.NoError(t, err)
	assert.Equal(t, config, r.of("which-node1")[0].Image, "the floating tag moved, the container did not")
}

// testContainersImageGone removes the image of a running container, as an admin may do.
func testContainersImageGone(t *testing.T, r *podsRig) {
	_, config, image := r.staged("gone/velum")
	sandbox, pod := r.sandbox("gone-node1", "file")
	r.start(sandbox, pod, "velum", image, 0)
	_, err := r.cri.Images.RemoveImage(t.Context(), &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: config.String()}})
	require.NoError(t, err)
	found := r.of("gone-node1")
	require.Len(t, found, 1)
	assert.Equal(t, config, found[0].Image)
	assert.Empty(t, found[0].Digests)
}

func testStop(t *testing.T, r *podsRig) {
	_, _, image := r.staged("stop/velum")
	sandbox, config := r.sandbox("stop-node1", "file")
	stopped := r.start(sandbox, config, "velum", image, 0)
	r.start(sandbox, config, "sidecar", image, 0)
	require.NoError(t, r.runtime.Stop(t.Context(), stopped, grace))
	found := r.of("stop-node1")
	require.Len(t, found, 1, "kubelet finds none that has ended")
	assert.Equal(t, "sidecar", found[0].Name)
	assert.True(t, found[0].Running, "the sidecar")
	assert.NoError(t, r.runtime.Stop(t.Context(), stopped, grace), "what is gone is stopped")
}

func testClear(t *testing.T, r *podsRig) {
	_, _, image := r.staged("clear/velum")
	sandbox, config := r.sandbox("clear-node1", "file")
	r.start(sandbox, config, "velum", image, 0)
	require.NoError(t, r.runtime.Clear(t.Context(), sandbox))
	assert.Len(t, r.of("clear-node1"), 1, "what runs stays")
	r.stop(sandbox)
	require.NoError(t, r.runtime.Clear(t.Context(), sandbox))
	assert.Empty(t, r.of("clear-node1"))
	assert.NoError(t, r.runtime.Clear(t.Context(), sandbox), "again")
	assert.NoError(t, r.runtime.Clear(t.Context(), "no such sandbox"))
}

func testListsStaged(t *testing.T, r *podsRig) {
	release, config, name := r.staged("lists/velum")
	id, listed, err := r.runtime.Lists(t.Context(), name)
	require.NoError(t, err)
	assert.True(t, listed)
	assert.Equal(t, config, id)
	assert.Equal(t, r.pin(release).Config, id)
	for _, name := range []string{release.Repository + ":" + release.Tag, release.Repository + ":none", "suse.com/nothing/here:1"} {
		_, listed, err = r.runtime.Lists(t.Context(), name)
		require.NoError(t, err)
		assert.False(t, listed, name)
	}
}

func testPull(t *testing.T, r *podsRig) {
	rel := r.publish("criopull/velum", "4.0.0-rev1-build1.1", node.Image{})
	ref := release.Reference{Repository: rel.Repository, Tag: rel.Tag}
	id, err := r.runtime.Pull(t.Context(), ref)
	require.NoError(t, err)
	assert.Equal(t, r.listed(ref.String()), id)

	_, err = r.runtime.Pull(t.Context(), release.Reference{Repository: rel.Repository, Tag: "none"})
	require.ErrorIs(t, err, release.ErrNotFound)
	r.Registry.Intercept(node.Fail(node.Manifest, http.StatusServiceUnavailable))
	defer r.Registry.Intercept(nil)
	_, err = r.runtime.Pull(t.Context(), ref)
	require.ErrorContains(t, err, "503")
	assert.NotErrorIs(t, err, release.ErrNotFound)
}

func testRuntimeAway(t *testing.T, r *podsRig) {
	_, _, image := r.staged("criaway/velum")
	sandbox, config := r.sandbox("away-node1", "file")
	id := r.start(sandbox, config, "velum", image, 0)
	r.Containerd.Kill()
	_, _, err := r.runtime.Containers(t.Context())
	assert.EqualError(t, err, "cri "+r.Containerd.Socket+": connect: connection refused")
	r.Containerd.Start()
	found := r.of("away-node1")
	require.Len(t, found, 1, "containers go on running while containerd is away")
	assert.Equal(t, id, found[0].ID)
	assert.True(t, found[0].Running)
	node.Eventually(t, "client", story.Ready, func() error { _, err := r.client.Version(t.Context()); return err })
}

func testContainersUsed(t *testing.T, r *podsRig) {
	_, config, image := r.staged("used/app")
	used := func() []digest.Digest {
		_, used, err := r.runtime.Containers(t.Context())
		require.NoError(t, err)
		return used
	}
	assert.NotContains(t, used(), config)
	sandbox, pod := r.sandbox("used-api", "api") // not a static pod
	id := r.start(sandbox, pod, "app", image, 0)
	assert.Contains(t, used(), config)
	_, err := r.cri.Runtime.StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: id})
	require.NoError(t, err)
	assert.Contains(t, used(), config, "kubelet keeps the ended container, and its log")
	require.NoError(t, r.runtime.Stop(t.Context(), id, grace))
	assert.NotContains(t, used(), config)
}

// testPrunedInUse does what the agent must never do, and shows why: the container keeps running, since it holds its
// snapshots, but can be restarted only if the registry answers.
func testPrunedInUse(t *testing.T, r *podsRig) {
	release, config, image := r.staged("inuse/velum")
	sandbox, pod := r.sandbox("inuse-node1", "file")
	id := r.start(sandbox, pod, "velum", image, 0)
	r.collect() // what the tests before have left
	before := r.snapshots("overlayfs", snapshots.KindCommitted)
	require.NoError(t, r.store.Pins(t.Context(), nil))
	require.NoError(t, r.store.Prune(t.Context(), r.stagedRecords(release)))
	r.unlisted(image)
	_, err := r.client.ContentStore().Info(t.Context(), release.Digest)
	require.Error(t, err, "the content is gone")
	assert.ElementsMatch(t, before, r.snapshots("overlayfs", snapshots.KindCommitted), "the container holds its snapshots")

	found := r.of("inuse-node1")
	require.Len(t, found, 1)
	assert.True(t, found[0].Running)
	assert.Equal(t, config, found[0].Image)
	_, err = r.cri.Runtime.StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: id})
	require.NoError(t, err)
	_, err = r.cri.Runtime.CreateContainer(t.Context(), &cri.CreateContainerRequest{
		PodSandboxId: sandbox, SandboxConfig: pod, Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "velum", Attempt: 1}, Image: &cri.ImageSpec{Image: config.String()},
		},
	})
	require.ErrorContains(t, err, "not found", "started without a pull")
	r.Registry.Forget()
	_, err = r.cri.Pull(image)
	require.NoError(t, err)
	assert.Equal(t, 1, r.Registry.Requests().Count(http.MethodGet, node.Blob), "its config; what is unpacked is not fetched")
	r.start(sandbox, pod, "velum", image, 1)
	assert.True(t, r.of("inuse-node1")[0].Running)
}

func testImageFilesystem(t *testing.T, r *podsRig) {
	name, err := r.runtime.Snapshotter(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "overlayfs", name)
	fs, err := r.runtime.Filesystem(t.Context())
	require.NoError(t, err)
	assert.Equal(t, r.Dir+"/containerd/root/io.containerd.snapshotter.v1.overlayfs", fs.Path)
	assert.Positive(t, fs.Free)
	assert.Greater(t, fs.Size, fs.Free)
}
