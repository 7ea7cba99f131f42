// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	containerdimages "github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/internal/images"
)

const (
	pinHost    = "pin.image-update-agent.local/"
	stageLabel = `labels."org.opensuse.image-update-agent/stage"`
)

// containerds are the servers that every conformance suite runs against.
var containerds = []node.Version{node.Containerd16, node.Containerd2}

func TestImages(t *testing.T) {
	t.Parallel()
	for _, version := range containerds {
		t.Run("containerd "+string(version), func(t *testing.T) {
			t.Parallel()
			ImagesConformance(t, version)
		})
	}
}

// ImagesConformance holds the promises of package images against a real containerd.
func ImagesConformance(t *testing.T, version node.Version) {
	r := newImagesRig(t, version)
	for name, test := range map[string]func(*testing.T, *imagesRig){
		"fresh release":                      testStageFresh,
		"nothing to do asks nobody":          testStageAgain,
		"lost names come back without pull":  testStageRenames,
		"lost content is fetched again":      testStageRepairs,
		"shared layers are fetched once":     testStageShared,
		"without long tag":                   testStageByDigest,
		"long tag that is followed":          testStageFollowedLong,
		"index":                              testStageIndex,
		"wrong platform":                     testStageWrongPlatform,
		"vanished":                           testStageVanished,
		"cancelled":                          testStageCancelled,
		"containerd killed":                  testStageContainerdKilled,
		"containerd away":                    testContainerdAway,
		"leases of a killed agent":           testStageLeftLeases,
		"kubelet's pull after staging":       testPullAfterStage,
		"floating tag is not touched":        testFloatingUntouched,
		"pulled by kubelet, pinned by us":    testStagePulledByCRI,
		"pins":                               testPins,
		"pins leave foreign records":         testPinsForeign,
		"pinned image survives its tag":      testPinHoldsContent,
		"several releases at the same time":  testStageParallel,
		"records are put back on an error":   testStageUndo,
		"repository moved to another digest": testStageNewer,
	} {
		t.Run(name, func(t *testing.T) {
			r.t = t
			r.Registry.Intercept(nil)
			test(t, r)
			r.Registry.Intercept(nil)
			assert.Empty(t, r.leases(), "leases")
		})
	}
}

// imagesRig is a node and the store under test. Its subtests run one after the other, each in repositories of its own.
type imagesRig struct {
	*node.Node
	t      *testing.T // of the running subtest
	store  *images.Store
	client *containerd.Client
	cri    *node.CRI
	seed   uint64
}

func newImagesRig(t *testing.T, version node.Version) *imagesRig {
	n := node.Start(t, node.Options{Containerd: version})
	r := &imagesRig{Node: n, t: t, client: n.Containerd.Client(), cri: n.CRI()}
	r.store = r.open()
	return r
}

func (r *imagesRig) open() *images.Store {
	store, err := images.New(images.Options{Socket: r.Containerd.Socket, Resolver: docker.NewResolver(docker.ResolverOptions{
		Hosts: config.ConfigureHosts(context.Background(), config.HostOptions{
			HostDir: config.HostDirFromRoot(r.Path("etc/containerd/certs.d")),
		}),
	})})
	require.NoError(r.t, err)
	return store
}

// layers are n layers of half a megabyte that no other image has.
func (r *imagesRig) layers(n int) []node.Layer {
	var layers []node.Layer
	for range n {
		r.seed++
		layers = append(layers, node.Layer{Seed: r.seed, Size: 512 << 10})
	}
	return layers
}

// publish publishes a release as the build service does.
func (r *imagesRig) publish(repository, long string, image node.Image) agent.Release {
	if image.Layers == nil {
		image.Layers = r.layers(1)
	}
	d := r.Registry.Publish(repository, long, image)
	intermediate, _, _ := strings.Cut(long, "-build")
	return agent.Release{
		Repository: r.Registry.Ref(repository), Tag: intermediate, Long: long, Digest: digest.Digest(d),
	}
}

func (r *imagesRig) stage(release agent.Release) node.Requests {
	r.t.Helper()
	r.Registry.Forget()
	require.NoError(r.t, r.store.Stage(r.t.Context(), release, nil))
	return r.Registry.Requests()
}

// records are the names and targets of a repository's records, its pins included.
func (r *imagesRig) records(repository string) map[string]digest.Digest {
	r.t.Helper()
	held, err := r.store.Held(r.t.Context())
	require.NoError(r.t, err)
	found := map[string]digest.Digest{}
	for _, image := range held {
		if strings.HasPrefix(image.Name, repository) || image.Repository == repository {
			found[image.Name] = image.Digest
		}
	}
	return found
}

// pin is the pin of a release; the zero value where there is none.
func (r *imagesRig) pin(release agent.Release) agent.HeldImage {
	r.t.Helper()
	held, err := r.store.Held(r.t.Context())
	require.NoError(r.t, err)
	for _, image := range held {
		if image.Pin && image.Repository == release.Repository && image.Digest == release.Digest {
			return image
		}
	}
	return agent.HeldImage{}
}

func (r *imagesRig) leases() []leases.Lease {
	found, err := r.client.LeasesService().List(r.t.Context(), stageLabel)
	require.NoError(r.t, err)
	return found
}

// listed is the image id that CRI shows for a name; containerd tells CRI of new records by an event, a moment later.
func (r *imagesRig) listed(name string) digest.Digest {
	r.t.Helper()
	var id string
	node.Eventually(r.t, "cri lists "+name, 10*time.Second, func() error {
		answer, err := r.cri.Images.ImageStatus(r.t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
		id = answer.GetImage().GetId()
		if err == nil && id == "" {
			return assert.AnError
		}
		return err
	})
	return digest.Digest(id)
}

// assertContent reads every blob of the node's platform back and compares it with its digest.
func (r *imagesRig) assertContent(release agent.Release) {
	r.t.Helper()
	store := r.client.ContentStore()
	image, err := r.client.ImageService().Get(r.t.Context(), r.pin(release).Name)
	require.NoError(r.t, err)
	manifest, err := containerdimages.Manifest(r.t.Context(), store, image.Target, platforms.Default())
	require.NoError(r.t, err)
	for _, blob := range append(manifest.Layers, manifest.Config, image.Target) {
		data, err := content.ReadBlob(r.t.Context(), store, blob)
		require.NoError(r.t, err)
		assert.Equal(r.t, blob.Digest, digest.FromBytes(data))
	}
	assert.True(r.t, r.pin(release).Complete, "complete")
}

// collect lets containerd collect its garbage now.
func (r *imagesRig) collect() {
	r.t.Helper()
	lease, err := r.client.LeasesService().Create(r.t.Context(), leases.WithRandomID())
	require.NoError(r.t, err)
	require.NoError(r.t, r.client.LeasesService().Delete(r.t.Context(), lease, leases.SynchronousDelete))
}

func testStageFresh(t *testing.T, r *imagesRig) {
	release := r.publish("fresh/velum", "4.0.0-rev1-build1.1", node.Image{Layers: r.layers(3)})
	var seen []agent.Progress
	require.NoError(t, r.store.Stage(t.Context(), release, func(p agent.Progress) { seen = append(seen, p) }))

	records := r.records(release.Repository)
	long, pin := release.Repository+":"+release.Long, r.pin(release)
	assert.True(t, strings.HasPrefix(pin.Name, pinHost), pin.Name)
	assert.Equal(t, map[string]digest.Digest{long: release.Digest, pin.Name: release.Digest}, records)
	r.assertContent(release)

	assert.Equal(t, agent.Progress{Reference: long, Phase: "resolving"}, seen[0])
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
	// containerd 1.6 knows no pins.
	assert.Equal(t, r.Containerd.Version != node.Containerd16, answer.GetImage().GetPinned(), "pinned")
}

// assertNoConfigRecord: a record that CRI makes for the config digest of an unmanaged image would hold the content
// after our own are gone.
func (r *imagesRig) assertNoConfigRecord(release agent.Release) {
	r.t.Helper()
	id := r.listed(release.Repository + ":" + release.Long) // CRI has seen the record
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
	var seen []agent.Progress
	require.NoError(t, r.store.Stage(t.Context(), release, func(p agent.Progress) { seen = append(seen, p) }))
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

// testStageRepairs takes away what CRI's discard_unpacked_layers or a damaged store takes.
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

// chainID is the OCI image specification's, section Layer ChainID.
func chainID(layers []digest.Digest) digest.Digest {
	chain := layers[0]
	for _, layer := range layers[1:] {
		chain = digest.FromString(chain.String() + " " + layer.String())
	}
	return chain
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
	var releases []agent.Release
	for i, name := range []string{"velum", "mariadb", "openldap"} {
		releases = append(releases, r.publish("parallel/"+name, "1.0-rev1-build1.1", node.Image{Layers: []node.Layer{layers[0], layers[i+1]}}))
	}
	r.Registry.Forget()
	var group sync.WaitGroup
	for _, release := range releases {
		group.Go(func() { assert.NoError(t, r.store.Stage(t.Context(), release, nil)) })
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

func testStageWrongPlatform(t *testing.T, r *imagesRig) {
	for name, platforms := range map[string][]string{"manifest": {"linux/arm64"}, "index": {"linux/arm64", "linux/s390x"}} {
		release := r.publish("wrong/"+name, "4.0.0-rev1-build1.1", node.Image{Platforms: platforms})
		r.Registry.Forget()
		err := r.store.Stage(t.Context(), release, nil)
		require.ErrorIs(t, err, agent.ErrPlatform, name)
		assert.NotErrorIs(t, err, agent.ErrNotFound, name)
		assert.ErrorContains(t, err, "want linux/amd64", name)
		assert.Empty(t, r.records(release.Repository), name)
		assert.Less(t, r.Registry.Requests().Bytes(node.Blob), int64(64<<10), "a layer was fetched")
	}
}

func testStageVanished(t *testing.T, r *imagesRig) {
	release := r.publish("vanished/velum", "4.0.0-rev1-build1.1", node.Image{})
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
		err := r.store.Stage(t.Context(), release, nil)
		require.ErrorIs(t, err, agent.ErrNotFound, vanishes)
		assert.ErrorContains(t, err, release.Repository+"@"+release.Digest.String())
		assert.Empty(t, r.records(release.Repository))
	}
	r.Registry.Intercept(nil)
	r.Registry.Delete("vanished/velum", release.Digest.String())
	require.ErrorIs(t, r.store.Stage(t.Context(), release, nil), agent.ErrNotFound)

	r.Registry.Intercept(node.Fail(node.Manifest, http.StatusInternalServerError))
	err := r.store.Stage(t.Context(), release, nil)
	require.ErrorContains(t, err, "500")
	assert.NotErrorIs(t, err, agent.ErrNotFound)
}

// hold lets requests for blobs wait; reached is closed with the first of them, and let lets all go on.
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
	known := goleak.IgnoreCurrent()
	reached, let := r.hold()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.store.Stage(ctx, release, func(agent.Progress) {}) }()
	<-reached
	assert.ErrorContains(t, r.store.Stage(t.Context(), release, nil), "is being staged already")
	assert.Len(t, r.leases(), 1)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	let()
	assert.Empty(t, r.records(release.Repository))
	assert.Empty(t, r.leases())
	// The resolver's and the front's kept-alive connections are theirs.
	goleak.VerifyNone(t, known,
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("net/http.(*conn).serve"))

	r.stage(release)
	r.assertContent(release)
}

func testStageContainerdKilled(t *testing.T, r *imagesRig) {
	release := r.publish("killed/velum", "4.0.0-rev1-build1.1", node.Image{Layers: r.layers(3)})
	reached, let := r.hold()
	ended := make(chan error, 1)
	go func() { ended <- r.store.Stage(t.Context(), release, func(agent.Progress) {}) }()
	<-reached
	r.Containerd.Kill()
	let()
	require.ErrorContains(t, <-ended, "containerd "+r.Containerd.Socket+": ")
	r.Containerd.Start()
	node.Eventually(t, "client", 10*time.Second, func() error { _, err := r.client.Version(t.Context()); return err })
	assert.Empty(t, r.records(release.Repository))
	assert.Len(t, r.leases(), 1, "the lease that could not be deleted")

	r.stage(release)
	assert.Empty(t, r.leases())
	r.assertContent(release)
}

func testContainerdAway(t *testing.T, r *imagesRig) {
	release := r.publish("away/velum", "4.0.0-rev1-build1.1", node.Image{})
	r.Containerd.Kill() // leaves the socket behind
	calls := map[string]func() error{
		"held":  func() error { _, err := r.store.Held(t.Context()); return err },
		"stage": func() error { return r.store.Stage(t.Context(), release, nil) },
		"pins":  func() error { return r.store.Pins(t.Context(), nil) },
	}
	for name, call := range calls {
		assert.EqualError(t, call(), "containerd "+r.Containerd.Socket+": connect: connection refused", name)
	}
	r.Containerd.Start()
	node.Eventually(t, "client", 10*time.Second, func() error { _, err := r.client.Version(t.Context()); return err })
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
	go func() { ended <- r.store.Stage(t.Context(), release, nil) }()
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

// testStageUndo lets a pull fail over a long tag that is there with another digest.
func testStageUndo(t *testing.T, r *imagesRig) {
	old := r.publish("undo/velum", "4.0.0-rev1-build1.1", node.Image{})
	r.stage(old)
	before := r.records(old.Repository)
	next := r.publish("undo/velum", "4.0.0-rev1-build1.1", node.Image{})
	r.Registry.Intercept(node.Fail(node.Blob, http.StatusServiceUnavailable))
	require.Error(t, r.store.Stage(t.Context(), next, nil))
	assert.Equal(t, before, r.records(old.Repository))
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

	require.NoError(t, r.store.Pins(t.Context(), []agent.Pin{
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
		{Name: pinHost + "somebody/else:1", Target: ours.Target},
		{Name: pinHost + "with/our-label:1", Target: ours.Target, Labels: labels},
		{Name: release.Repository + ":mine", Target: ours.Target, Labels: labels},
	} {
		_, err := r.client.ImageService().Create(t.Context(), foreign)
		require.NoError(t, err)
	}
	require.NoError(t, r.store.Pins(t.Context(), nil))
	for _, name := range []string{pinHost + "somebody/else:1", pinHost + "with/our-label:1", release.Repository + ":mine"} {
		_, err := r.client.ImageService().Get(t.Context(), name)
		assert.NoError(t, err, name)
	}
	_, err = r.client.ImageService().Get(t.Context(), ours.Name)
	assert.Error(t, err, "our own pin stayed")
}

// testPinHoldsContent removes every other name and lets containerd collect its garbage.
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
