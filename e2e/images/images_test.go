// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	containerdimages "github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	agentnode "github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/node/images"
)

const (
	stageLabel = `labels."org.opensuse.image-update-agent/stage"`
)

func TestImages(t *testing.T) {
	t.Parallel()
	for _, version := range node.Containerds() {
		t.Run("containerd "+string(version), func(t *testing.T) {
			t.Parallel()
			ImagesConformance(t, version)
		})
	}
}

// ImagesConformance checks the promises of package images against a real containerd.
func ImagesConformance(t *testing.T, version node.Version) {
	r := newImagesRig(t, version)
	for name, test := range map[string]func(*testing.T, *imagesRig){
		"fresh release":                      testStageFresh,
		"nothing to do asks nobody":          testStageAgain,
		"lost names come back without pull":  testStageRenames,
		"lost content is fetched again":      testStageRepairs,
		"content without its file":           testStageWithoutFiles,
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
		"a failed pull writes no record":     testStageUndo,
		"repository moved to another digest": testStageNewer,
		"prune frees what nothing needs":     testPruneFrees,
		"prune of what kubelet pulled, too":  testPrunePulled,
		"prune leaves what is not as seen":   testPruneLeaves,
		"leases that nobody needs go":        testLeasesTidied,
		"room is asked for what is missing":  testStageRoom,
		"broken pull is resumed":             testStageResumes,
		"connection is made anew":            testStageReconnects,
		"registry without ranges":            testStageRangeless,
		"registry with wrong bytes":          testStageSpoilt,
		"given up is resumed":                testStageTakenBack,
		"together":                           testStageTogether,
		"whiteouts":                          testStageWhiteouts,
		"containerd restarted":               testStageRestarted,
		"containerd restarted too often":     testStageRestartedTooOften,
		"named by digest":                    testName,
		"a name alone holds the content":     testNameAlone,
		"named and pulled by kubelet":        testNamePulled,
		"what is incomplete gets no name":    testNameIncomplete,
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

// imagesRig is a node and the store under test. Its subtests run in sequence, each in its own repositories.
type imagesRig struct {
	*node.Node
	t      *testing.T // of the running subtest
	store  *images.Store
	client *containerd.Client
	cri    *node.CRI
	seed   uint64
}

func newImagesRig(t *testing.T, version node.Version) *imagesRig {
	return newImagesRigWith(t, node.Options{Containerd: version})
}

func newImagesRigWith(t *testing.T, options node.Options) *imagesRig {
	n := node.Start(t, options)
	r := &imagesRig{Node: n, t: t, client: n.Containerd.Client(), cri: n.CRI()}
	r.store = r.open()
	// One image stays for the whole test, and with it the layer that all images of the node share: no subtest's counts
	// depend on earlier subtests.
	r.Registry.Push("base", node.Image{Answer: "base"}, "1")
	_, err := r.cri.Pull(r.Registry.Ref("base:1"))
	require.NoError(t, err)
	return r
}

func (r *imagesRig) open() *images.Store { return r.openWith(images.Options{}) }

func (r *imagesRig) openWith(o images.Options) *images.Store {
	o.Socket, o.Source = r.Containerd.Socket, resolved{docker.NewResolver(docker.ResolverOptions{
		Hosts: config.ConfigureHosts(context.Background(), config.HostOptions{
			HostDir: config.HostDirFromRoot(r.Path("etc/containerd/certs.d")),
		}),
	})}
	store, err := images.New(o)
	require.NoError(r.t, err)
	return store
}

// resolved is a source that uses containerd's own resolver.
type resolved struct{ remotes.Resolver }

func (r resolved) Locate(ctx context.Context, repository string, d digest.Digest) (ocispec.Descriptor, error) {
	_, desc, err := r.Resolve(ctx, repository+"@"+d.String())
	return desc, notFound(err)
}

func (r resolved) Fetch(ctx context.Context, repository string, desc ocispec.Descriptor) (io.ReadCloser, error) {
	f, err := r.Fetcher(ctx, repository+"@"+desc.Digest.String())
	if err != nil {
		return nil, err
	}
	body, err := f.Fetch(ctx, desc)
	if err != nil {
		return nil, notFound(err)
	}
	return resolvedBody{body.(io.ReadSeekCloser)}, nil
}

// resolvedBody is the body of containerd's fetcher, which sends its request at the first Read.
type resolvedBody struct{ io.ReadSeekCloser }

func (b resolvedBody) Read(p []byte) (int, error) {
	n, err := b.ReadSeekCloser.Read(p)
	return n, notFound(err)
}

func notFound(err error) error {
	if errdefs.IsNotFound(err) {
		return fmt.Errorf("%w: %w", release.ErrNotFound, err)
	}
	return err
}

// layers returns n layers of half a megabyte that no other image has.
func (r *imagesRig) layers(n int) []node.Layer {
	var layers []node.Layer
	for range n {
		r.seed++
		layers = append(layers, node.Layer{Seed: r.seed, Size: 512 << 10})
	}
	return layers
}

// publish publishes a release as the build service does.
func (r *imagesRig) publish(repository, long string, image node.Image) release.Release {
	if image.Layers == nil {
		image.Layers = r.layers(1)
	}
	d := r.Registry.Publish(repository, long, image)
	intermediate, _, _ := strings.Cut(long, "-build")
	return release.Release{
		Repository: r.Registry.Ref(repository), Tag: intermediate, Long: long, Digest: digest.Digest(d),
	}
}

func (r *imagesRig) stage(release release.Release) node.Requests {
	r.t.Helper()
	r.Registry.Forget()
	require.NoError(r.t, r.store.Stage(r.t.Context(), release, agentnode.StageOptions{}))
	return r.Registry.Requests()
}

// records returns the targets of a repository's records by name, including its pins.
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

// pin returns the pin of a release, or the zero value if there is none.
func (r *imagesRig) pin(release release.Release) agentnode.HeldImage {
	r.t.Helper()
	held, err := r.store.Held(r.t.Context())
	require.NoError(r.t, err)
	for _, image := range held {
		if image.Pin && image.Repository == release.Repository && image.Digest == release.Digest {
			return image
		}
	}
	return agentnode.HeldImage{}
}

func (r *imagesRig) leases() []leases.Lease {
	found, err := r.client.LeasesService().List(r.t.Context(), stageLabel)
	require.NoError(r.t, err)
	return found
}

// listed returns the image id that CRI lists for a name. It waits, since containerd reports new records to CRI by an
// event.
func (r *imagesRig) listed(name string) digest.Digest {
	r.t.Helper()
	var id string
	node.Eventually(r.t, "cri lists "+name, story.Ready, func() error {
		answer, err := r.cri.Images.ImageStatus(r.t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
		id = answer.GetImage().GetId()
		if err == nil && id == "" {
			return assert.AnError
		}
		return err
	})
	return digest.Digest(id)
}

// assertContent reads every blob of the node's platform and compares it with its digest.
func (r *imagesRig) assertContent(release release.Release) {
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

// collect makes containerd collect its garbage now.
func (r *imagesRig) collect() {
	r.t.Helper()
	lease, err := r.client.LeasesService().Create(r.t.Context(), leases.WithRandomID())
	require.NoError(r.t, err)
	require.NoError(r.t, r.client.LeasesService().Delete(r.t.Context(), lease, leases.SynchronousDelete))
}
