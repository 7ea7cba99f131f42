// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentnode "github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/node/images"
	"github.com/kubic-project/image-update-agent/internal/registry"
)

// layerServer serves the one layer of a release that is larger than a megabyte from the registry's storage.
type layerServer struct {
	t    *testing.T
	path string // of the blob's URL
	file string
	size int64

	lock   sync.Mutex
	serve  func(w http.ResponseWriter, q *http.Request) // nil: serve it correctly
	ranges []string                                     // Range headers of the requests, in order
}

// bigRelease returns a release with one big layer.
func (r *imagesRig) bigRelease(repository string) (release.Release, *layerServer) {
	r.t.Helper()
	r.seed++
	release := r.publish(repository, "4.0.0-rev1-build1.1", node.Image{Layers: []node.Layer{{Seed: r.seed, Size: story.BigLayer}}})
	d := r.lastLayer(release)
	s := &layerServer{
		t: r.t, path: "/blobs/" + d.String(),
		file: filepath.Join(r.Registry.Storage(), "docker/registry/v2/blobs/sha256", d.Encoded()[:2], d.Encoded(), "data"),
	}
	info, err := os.Stat(s.file)
	require.NoError(r.t, err)
	s.size = info.Size()
	r.Registry.Intercept(func(w http.ResponseWriter, q *http.Request) bool {
		if !strings.HasSuffix(q.URL.Path, s.path) {
			return false
		}
		s.lock.Lock()
		serve := s.serve
		s.ranges = append(s.ranges, q.Header.Get("Range"))
		s.lock.Unlock()
		if serve == nil {
			serve = s.whole
		}
		serve(w, q)
		return true
	})
	return release, s
}

// answers sets how the layer is served from now on, and clears the recorded requests.
func (s *layerServer) answers(serve func(http.ResponseWriter, *http.Request)) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.serve, s.ranges = serve, nil
}

func (s *layerServer) asked() []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return append([]string(nil), s.ranges...)
}

func (s *layerServer) whole(w http.ResponseWriter, q *http.Request) { http.ServeFile(w, q, s.file) }

// rangeless ignores the Range header.
func (s *layerServer) rangeless(w http.ResponseWriter, q *http.Request) {
	q.Header.Del("Range")
	s.whole(noRanges{w}, q)
}

type noRanges struct{ http.ResponseWriter }

func (w noRanges) WriteHeader(status int) {
	w.Header().Del("Accept-Ranges")
	w.ResponseWriter.WriteHeader(status)
}

// breaks closes the connection in the middle of the layer, and makes all later requests fail.
func (s *layerServer) breaks(w http.ResponseWriter, q *http.Request) {
	if len(s.asked()) > 1 {
		http.Error(w, "in a bad way", http.StatusInternalServerError)
		return
	}
	s.part(w)
	panic(http.ErrAbortHandler)
}

// breaksOnce closes the connection in the middle of the layer, and serves the next request correctly.
func (s *layerServer) breaksOnce(w http.ResponseWriter, q *http.Request) {
	if len(s.asked()) > 1 {
		s.whole(w, q)
		return
	}
	s.part(w)
	panic(http.ErrAbortHandler)
}

// holds sends half of the layer to the first client and then stalls.
func (s *layerServer) holds(w http.ResponseWriter, q *http.Request) {
	if len(s.asked()) > 1 {
		s.whole(w, q)
		return
	}
	s.part(w)
	<-q.Context().Done()
	panic(http.ErrAbortHandler)
}

// spoils answers a range request with wrong bytes.
func (s *layerServer) spoils(w http.ResponseWriter, q *http.Request) {
	data, err := os.ReadFile(s.file)
	assert.NoError(s.t, err)
	for i := range data {
		data[i]++
	}
	http.ServeContent(w, q, "", time.Time{}, strings.NewReader(string(data)))
}

func (s *layerServer) part(w http.ResponseWriter) {
	data, err := os.ReadFile(s.file)
	assert.NoError(s.t, err)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = w.Write(data[:story.BrokenAt])
	_ = http.NewResponseController(w).Flush()
}

// lastLayer reads the digest from the registry, bypassing the store.
func (r *imagesRig) lastLayer(release release.Release) digest.Digest {
	r.t.Helper()
	ref, err := name.ParseReference(release.Repository+"@"+release.Digest.String(), name.Insecure)
	require.NoError(r.t, err)
	image, err := remote.Image(ref, remote.WithContext(r.t.Context()))
	require.NoError(r.t, err)
	layers, err := image.Layers()
	require.NoError(r.t, err)
	d, err := layers[len(layers)-1].Digest()
	require.NoError(r.t, err)
	return digest.Digest(d.String())
}

// part returns how many bytes of an incomplete layer containerd has.
func (r *imagesRig) part() int64 {
	r.t.Helper()
	parts, err := r.client.ContentStore().ListStatuses(r.t.Context())
	require.NoError(r.t, err)
	var sum int64
	for _, part := range parts {
		sum += part.Offset
	}
	return sum
}

// awaitPart waits until containerd has all bytes that the registry has sent so far.
func (r *imagesRig) awaitPart() {
	r.t.Helper()
	node.Eventually(r.t, "part of a layer", story.Ready, func() error {
		if r.part() != story.BrokenAt {
			return assert.AnError
		}
		return nil
	})
}

// ways returns stores with each resolver that must be able to resume a pull: containerd's own, and the agent's.
func (r *imagesRig) ways() map[string]*images.Store {
	source := registry.New(registry.Options{CertsDirs: []string{r.Path("etc/containerd/certs.d")}})
	r.t.Cleanup(source.Close)
	store, err := images.New(images.Options{Socket: r.Containerd.Socket, Source: source})
	require.NoError(r.t, err)
	return map[string]*images.Store{"containerd": r.store, "agent": store}
}

// testStageResumes checks that a pull does not fetch again the bytes that it had before a break, whether or not the
// registry supports ranges.
func testStageResumes(t *testing.T, r *imagesRig) {
	for way, store := range r.ways() {
		release, layer := r.bigRelease("resumes/" + way)
		layer.answers(layer.breaks)
		err := store.Stage(t.Context(), release, agentnode.StageOptions{})
		require.ErrorContains(t, err, "registry: "+r.lastLayer(release).String()+": after "+
			strconv.Itoa(story.BrokenAt)+" of "+strconv.FormatInt(layer.size, 10)+" bytes: ", way)
		if way == "agent" {
			assert.ErrorContains(t, err, "upstream "+r.Registry.Host)
		}
		assert.Empty(t, r.records(release.Repository), way)
		assert.Len(t, r.leases(), 1, way)
		assert.EqualValues(t, story.BrokenAt, r.part(), way)
		r.collect()
		assert.EqualValues(t, story.BrokenAt, r.part(), "%s: collected", way)

		layer.answers(nil)
		r.Registry.Forget()
		require.NoError(t, store.Stage(t.Context(), release, agentnode.StageOptions{}), way)
		assert.Equal(t, []string{"bytes=" + strconv.Itoa(story.BrokenAt) + "-"}, layer.asked(), way)
		assert.Equal(t, layer.size-story.BrokenAt, r.Registry.Requests().Bytes(node.Blob), way)
		r.assertContent(release)
		assert.Empty(t, r.leases(), way)
	}
}

// testStageReconnects checks that containerd's fetcher reconnects once after a connection that ended too early.
func testStageReconnects(t *testing.T, r *imagesRig) {
	for way, store := range r.ways() {
		release, layer := r.bigRelease("reconnects/" + way)
		layer.answers(layer.breaksOnce)
		require.NoError(t, store.Stage(t.Context(), release, agentnode.StageOptions{}), way)
		assert.Equal(t, []string{"", "bytes=" + strconv.Itoa(story.BrokenAt) + "-"}, layer.asked(), way)
		r.assertContent(release)
	}
}

// testStageRangeless checks that a registry that answers a range request with the whole blob costs only bytes.
func testStageRangeless(t *testing.T, r *imagesRig) {
	for way, store := range r.ways() {
		release, layer := r.bigRelease("rangeless/" + way)
		layer.answers(layer.breaks)
		require.Error(t, store.Stage(t.Context(), release, agentnode.StageOptions{}), way)
		layer.answers(layer.rangeless)
		r.Registry.Forget()
		require.NoError(t, store.Stage(t.Context(), release, agentnode.StageOptions{}), way)
		assert.Equal(t, layer.size, r.Registry.Requests().Bytes(node.Blob), way)
		r.assertContent(release)
	}
}

// testStageSpoilt checks that wrong bytes are dropped: else every later attempt would resume from them.
func testStageSpoilt(t *testing.T, r *imagesRig) {
	release, layer := r.bigRelease("spoilt/velum")
	layer.answers(layer.breaks)
	require.Error(t, r.store.Stage(t.Context(), release, agentnode.StageOptions{}))
	layer.answers(layer.spoils)
	err := r.store.Stage(t.Context(), release, agentnode.StageOptions{})
	require.ErrorContains(t, err, "digest")
	assert.Empty(t, r.leases())
	r.collect()
	assert.Zero(t, r.part())
	layer.answers(nil)
	r.stage(release)
	assert.Equal(t, []string{""}, layer.asked())
	r.assertContent(release)
}

// testStageTakenBack checks that the fetched bytes stay when the caller cancels the pull, and when the pull times out.
func testStageTakenBack(t *testing.T, r *imagesRig) {
	for name, broken := range map[string]func(release.Release, *layerServer) error{
		"cancelled": func(release release.Release, layer *layerServer) error {
			layer.answers(layer.holds)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- r.store.Stage(ctx, release, agentnode.StageOptions{}) }()
			r.awaitPart()
			cancel()
			return <-ended
		},
		"timeout": func(release release.Release, layer *layerServer) error {
			// How long the steps before the layer, and its bytes, take depends on the machine.
			for wait := 2 * time.Second; ; wait *= 2 {
				layer.answers(layer.holds)
				err := r.openWith(images.Options{Timeout: wait}).Stage(t.Context(), release, agentnode.StageOptions{})
				if r.part() == story.BrokenAt || wait > story.Ready {
					return err
				}
			}
		},
	} {
		release, layer := r.bigRelease("takenback/" + name)
		err := broken(release, layer)
		require.Error(t, err, name)
		if name == "timeout" {
			assert.Regexp(t, "timed out of [0-9ms]+, at [1-9][0-9]* of [1-9][0-9]* bytes", err.Error())
		}
		assert.Len(t, r.leases(), 1, name)
		layer.answers(nil)
		r.stage(release)
		assert.Equal(t, []string{"bytes=" + strconv.Itoa(story.BrokenAt) + "-"}, layer.asked(), name)
		r.assertContent(release)
	}
}

// testStageRestarted kills containerd in the middle of a layer. Staging resumes there once containerd is back.
func testStageRestarted(t *testing.T, r *imagesRig) {
	for way, store := range r.ways() {
		release, layer := r.bigRelease("restarted/" + way)
		layer.answers(layer.holds)
		r.Registry.Forget()
		asked, ended := 0, make(chan error, 1)
		go func() {
			ended <- store.Stage(t.Context(), release, agentnode.StageOptions{CheckSpace: func(context.Context, policy.SpaceNeeded) error {
				asked++
				return nil
			}})
		}()
		r.awaitPart()
		r.Containerd.Kill()
		r.Containerd.Start()
		require.NoError(t, <-ended, way)
		assert.Equal(t, []string{"", "bytes=" + strconv.Itoa(story.BrokenAt) + "-"}, layer.asked(), way)
		assert.Equal(t, 1, asked, "room")
		r.awaitClient()
		r.assertContent(release)
		assert.Empty(t, r.leases(), way)
		assert.Zero(t, r.part(), way)
	}
}

// testStageRestartedTooOften checks that staging gives up on a containerd that ends whenever the pull resumes.
func testStageRestartedTooOften(t *testing.T, r *imagesRig) {
	release, layer := r.bigRelease("toooften/velum")
	asked := make(chan struct{})
	layer.answers(func(w http.ResponseWriter, q *http.Request) {
		select {
		case asked <- struct{}{}:
			<-q.Context().Done()
		case <-q.Context().Done():
		}
		panic(http.ErrAbortHandler)
	})
	ended := make(chan error, 1)
	go func() { ended <- r.store.Stage(t.Context(), release, agentnode.StageOptions{}) }()
	kills, err := 0, error(nil)
	for err == nil {
		select {
		case <-asked:
			kills++
			r.Containerd.Kill()
			r.Containerd.Start()
		case err = <-ended:
			require.Error(t, err)
		}
	}
	// The cause is the lost connection, or, shortened, containerd's error after its restart.
	require.ErrorContains(t, err, "after 3 rest")
	assert.Contains(t, []int{2, 3, 4}, kills, "a containerd that was killed may stumble before it gets so far")
	r.awaitClient()
	layer.answers(nil)
	r.stage(release)
	r.assertContent(release)
}

// awaitClient waits until the rig's own client has reconnected to containerd.
func (r *imagesRig) awaitClient() {
	r.t.Helper()
	node.Eventually(r.t, "client", story.Ready, func() error { _, err := r.client.Version(r.t.Context()); return err })
}
