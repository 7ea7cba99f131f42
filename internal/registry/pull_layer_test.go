// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// cutting interrupts a layer after some bytes, for a number of times.
type cutting struct {
	layer  string
	ranges bool // the host supports them

	mu    sync.Mutex
	cuts  []int
	asked []string // the Range of each request
}

func (c *cutting) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, req.Header.Get("Range"))
	from := 0
	if _, err := fmt.Sscanf(req.Header.Get("Range"), "bytes=%d-", &from); err == nil && c.ranges {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(c.layer)-1, len(c.layer)))
	} else {
		from = 0
	}
	rest := c.layer[from:]
	w.Header().Set("Content-Length", strconv.Itoa(len(rest)))
	if from > 0 {
		w.WriteHeader(http.StatusPartialContent)
	}
	if len(c.cuts) > 0 {
		rest, c.cuts = rest[:min(c.cuts[0], len(rest))], c.cuts[1:]
	}
	_, _ = io.WriteString(w, rest)
}

func TestTornLayers(t *testing.T) {
	t.Parallel()
	const layer = "a whole layer"
	for title, c := range map[string]struct {
		cuts   []int
		ranges bool
		asked  []string
		got    string
		want   string // error
	}{
		"whole":               {nil, true, []string{""}, layer, ""},
		"torn twice":          {[]int{2, 3}, true, []string{"", "bytes=2-", "bytes=5-"}, layer, ""},
		"no ranges":           {[]int{2, 5}, false, []string{"", "bytes=2-", "bytes=5-"}, layer, ""},
		"no progress":         {[]int{2, 0, 0, 0}, true, []string{"", "bytes=2-", "bytes=2-", "bytes=2-"}, layer[:2], "unexpected EOF"},
		"progress, then none": {[]int{1, 0, 0, 1, 0, 0}, true, []string{"", "bytes=1-", "bytes=1-", "bytes=1-", "bytes=2-", "bytes=2-", "bytes=2-"}, layer, ""},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			f, server := newFake(t), &cutting{layer: layer, ranges: c.ranges, cuts: c.cuts}
			f.answer(server.ServeHTTP)
			r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
			body, err := r.Fetch(t.Context(), f.repository(), layerOf(layer))
			require.NoError(t, err)
			got, err := io.ReadAll(body)
			require.NoError(t, body.Close())
			assert.Equal(t, c.got, string(got))
			assert.Equal(t, c.asked, server.asked)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, f.repository()+": upstream "+f.host()+": "+c.want)
		})
	}
}

// A wrong range is not accepted, and the next host is asked.
func TestWrongRangeIsRejected(t *testing.T) {
	t.Parallel()
	const layer = "a whole layer"
	mirror, upstream := newFake(t), newFake(t)
	mirror.answer(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Range", "bytes 0-1/13")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = io.WriteString(w, layer[:2])
	})
	upstream.set("", []byte(layer))
	r, rec := newRegistry(t, certsD(t, upstream.host(), plainHTTP(upstream.host())+fmt.Sprintf("[host.\"http://%s\"]\n", mirror.host())))
	body, err := r.Fetch(t.Context(), upstream.repository(), layerOf(layer))
	require.NoError(t, err)
	at, err := body.(io.Seeker).Seek(-3, io.SeekEnd)
	require.NoError(t, err)
	assert.Equal(t, int64(10), at)
	got, err := io.ReadAll(body)
	require.NoError(t, err)
	assert.Equal(t, "yer", string(got), "from the middle, of a host that does not know ranges")
	assert.Len(t, rec.lines(), 2, "nothing is sent before the first Read")
	_, err = body.(io.Seeker).Seek(-1, io.SeekStart)
	require.Error(t, err)
	require.NoError(t, body.Close())
}

// The answer to HEAD for a manifest must match; if it is incomplete, the manifest itself is read.
func TestPullResolvesManifests(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	desc := f.image(t, "linux", "amd64", nil)
	f.tag("1", desc)
	for title, c := range map[string]struct {
		d    digest.Digest
		head http.HandlerFunc
		want string
	}{
		"all":              {desc.Digest, nil, ""},
		"no size":          {desc.Digest, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(digestHeader, desc.Digest.String()) }, ""},
		"another digest":   {desc.Digest, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(digestHeader, testDigest) }, "has digest"},
		"no digest":        {desc.Digest, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "5") }, ""},
		"vanished":         {testDigest, nil, "404"},
		"no digest at all": {"sha256:../x", nil, "digest"},
	} {
		f.answer(func(w http.ResponseWriter, req *http.Request) {
			if req.Method == http.MethodHead && c.head != nil {
				c.head(w, req)
				w.WriteHeader(http.StatusOK)
			}
		})
		r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
		got, err := r.Locate(t.Context(), f.repository(), c.d)
		if c.want != "" {
			require.ErrorContains(t, err, c.want, title)
			assert.Equal(t, c.want == "404", errors.Is(err, release.ErrNotFound), title)
			continue
		}
		require.NoError(t, err, title)
		assert.Equal(t, ocispec.Descriptor{MediaType: desc.MediaType, Digest: desc.Digest, Size: desc.Size}, got, title)
	}
}

// containerd's own handlers pull an image into its content store, and resume a partial layer.
func TestContainerdPullsAndResumes(t *testing.T) {
	t.Parallel()
	host := startDistribution(t)
	img := testImage(t, "linux/amd64")
	push(t, host+"/app:1", img)
	r, rec := newRegistry(t, certsD(t, host, plainHTTP(host)))
	store, err := local.NewStore(t.TempDir())
	require.NoError(t, err)
	d, err := img.Digest()
	require.NoError(t, err)
	desc, err := r.Locate(t.Context(), host+"/app", digest.Digest(d.String()))
	require.NoError(t, err)
	fetcher := remotes.FetcherFunc(func(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
		return r.Fetch(ctx, host+"/app", desc)
	})
	layers, err := img.Layers()
	require.NoError(t, err)
	begun, err := layers[0].Digest()
	require.NoError(t, err)
	size, err := layers[0].Size()
	require.NoError(t, err)
	begin(t, store, fetcher, ocispec.Descriptor{
		MediaType: images.MediaTypeDockerSchema2LayerGzip, Digest: digest.Digest(begun.String()), Size: size,
	})

	fetch := images.Handlers(remotes.FetchHandler(store, fetcher), images.ChildrenHandler(store))
	require.NoError(t, images.Dispatch(t.Context(), fetch, nil, desc))
	for _, layer := range layers {
		d, err := layer.Digest()
		require.NoError(t, err)
		info, err := store.Info(t.Context(), digest.Digest(d.String()))
		require.NoError(t, err)
		size, err := layer.Size()
		require.NoError(t, err)
		assert.Equal(t, size, info.Size)
	}
	var ranges []string
	for _, req := range rec.sent {
		if strings.HasSuffix(req.URL.Path, begun.String()) {
			ranges = append(ranges, req.Header.Get("Range"))
		}
	}
	assert.Equal(t, []string{"", "bytes=7-"}, ranges)
}

// begin leaves the first seven bytes of a layer in the store.
func begin(t *testing.T, store content.Store, fetcher remotes.Fetcher, desc ocispec.Descriptor) {
	t.Helper()
	body, err := fetcher.Fetch(t.Context(), desc)
	require.NoError(t, err)
	seven := make([]byte, 7)
	_, err = io.ReadFull(body, seven)
	require.NoError(t, err)
	require.NoError(t, body.Close())
	ctx := context.WithoutCancel(t.Context())
	w, err := store.Writer(ctx, content.WithRef(remotes.MakeRefKey(ctx, desc)), content.WithDescriptor(desc))
	require.NoError(t, err)
	_, err = w.Write(seven)
	require.NoError(t, err)
	require.NoError(t, w.Close())
}
