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
	"testing/synctest"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

func layerOf(text string) ocispec.Descriptor {
	return ocispec.Descriptor{
		MediaType: ocispec.MediaTypeImageLayerGzip, Digest: digest.FromString(text), Size: int64(len(text)),
	}
}

// containerd's resolver would repeat these requests; here only the agent does the back-off.
func TestPullSendsEachRequestOnce(t *testing.T) {
	t.Parallel()
	answers := map[string]http.HandlerFunc{
		"torn off": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}
	for _, status := range []int{
		http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	} {
		answers[strconv.Itoa(status)] = busy(status, "")
	}
	for title, answer := range answers {
		for _, way := range []string{"pull locates", "pull fetches"} {
			t.Run(title+" "+way, func(t *testing.T) {
				t.Parallel()
				f := newFake(t)
				f.answer(answer)
				r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
				source := sourceError(t, f.ways(t, r)[way]())
				assert.Equal(t, f.host(), source.Host)
				assert.Equal(t, f.repository(), source.Repository)
				assert.False(t, source.Unasked)
				assert.NotErrorIs(t, source, io.EOF, "a reader would take it for the end")
				if title != "torn off" {
					assert.Equal(t, title, strconv.Itoa(source.Status))
				}
				assert.Len(t, f.log(), 1)
				assert.Equal(t, uint64(1), r.Counts().Pulls)
			})
		}
	}
}

// A host that does not support HEAD gets a GET for the manifest, and one that requires a token gets a second request:
// these are other requests.
func TestPullSendsNeededRequests(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	desc := f.image(t, "linux", "amd64", nil)
	f.tag("1", desc)
	s := newTokenServer(t, f)
	wantsToken := f.before
	f.answer(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodHead {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		wantsToken(w, req)
	})
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
	got, err := r.Locate(t.Context(), f.repository(), desc.Digest)
	require.NoError(t, err)
	assert.Equal(t, desc.Digest, got.Digest)
	assert.Equal(t, 1, s.count())
	assert.Len(t, f.log(), 3)
	assert.Equal(t, Counts{Requests: 4, Tokens: 1, Pulls: 3}, requestsOf(r.Counts()))
	require.NoError(t, f.poll(t, r))
	assert.Equal(t, map[string]uint64{"metadata": 2, "token": 1, "pull": 3}, r.Counts().Kinds())
}

// requestsOf removes the counts that are not exact.
func requestsOf(c Counts) Counts {
	return Counts{Requests: c.Requests, Tokens: c.Tokens, Pulls: c.Pulls}
}

// One host may answer "not found" although another one has the tag.
func TestPullIsNotFoundOnlyOnAllHosts(t *testing.T) {
	t.Parallel()
	for title, answer := range map[string]http.HandlerFunc{
		"429": busy(http.StatusTooManyRequests, "60"), "500": busy(http.StatusInternalServerError, ""),
		"torn off": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			mirror, upstream := newFake(t), newFake(t) // without content
			toml := plainHTTP(upstream.host()) + fmt.Sprintf("[host.\"http://%s\"]\n", mirror.host())
			r, _ := newRegistry(t, certsD(t, upstream.host(), toml))
			ways := upstream.ways(t, r)
			for _, way := range []string{"pull locates", "pull fetches"} {
				require.ErrorIs(t, ways[way](), release.ErrNotFound, way)
			}
			upstream.answer(answer)
			for _, way := range []string{"pull locates", "pull fetches"} {
				err := ways[way]()
				assert.NotErrorIs(t, err, release.ErrNotFound, way)
				assert.Equal(t, upstream.host(), sourceError(t, err).Host, way)
			}
		})
	}
}

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

// A pull after a description requests only layers. Real registry.
func TestPullRequestsNoDocumentAgain(t *testing.T) {
	t.Parallel()
	host := startDistribution(t)
	img := testImage(t, "linux/amd64")
	push(t, host+"/app:1", img)
	r, rec := newRegistry(t, certsD(t, host, plainHTTP(host)))
	found, err := r.Resolve(t.Context(), release.Reference{Repository: host + "/app", Tag: "1"})
	require.NoError(t, err)
	_, err = r.Describe(t.Context(), host+"/app", found.Digest)
	require.NoError(t, err)
	assert.Len(t, rec.sent, 3, "as many as containerd's own pull sends before the layers")

	read := func(desc ocispec.Descriptor) []byte {
		t.Helper()
		body, err := r.Fetch(t.Context(), host+"/app", desc)
		require.NoError(t, err)
		text, err := io.ReadAll(body)
		require.NoError(t, err)
		require.NoError(t, body.Close())
		assert.Equal(t, desc.Digest, digest.FromBytes(text))
		return text
	}
	desc, err := r.Locate(t.Context(), host+"/app", found.Digest)
	require.NoError(t, err)
	doc, err := ocimanifest.Parse(desc.MediaType, read(desc))
	require.NoError(t, err)
	config, err := doc.ImageConfig()
	require.NoError(t, err)
	read(config)
	assert.Len(t, rec.sent, 3)
	layer, err := img.Layers()
	require.NoError(t, err)
	name, err := layer[0].Digest()
	require.NoError(t, err)
	size, err := layer[0].Size()
	require.NoError(t, err)
	read(ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: digest.Digest(name.String()), Size: size})
	assert.Len(t, rec.sent, 4)

	read(desc)
	assert.Len(t, rec.sent, 5, "a pull takes a document out")
	_, err = r.Locate(t.Context(), host+"/app", found.Digest)
	require.NoError(t, err)
	assert.Len(t, rec.sent, 6)
	assert.Equal(t, "HEAD", rec.sent[5].Method, "the type is the one of HEAD, as in containerd")
}

// A long tag is resolved with the content that a description needs next. Content of another digest is not kept, whatever
// the host says. Real registry.
func TestALongTagBringsTheManifest(t *testing.T) {
	t.Parallel()
	host := startDistribution(t)
	img := testImage(t, "linux/amd64")
	push(t, host+"/app:1", img)
	push(t, host+"/app:1-build1", img)
	push(t, host+"/app:1-build2", testImage(t, "linux/arm64"))
	r, rec := newRegistry(t, certsD(t, host, plainHTTP(host)))
	ref := func(tag string) release.Reference { return release.Reference{Repository: host + "/app", Tag: tag} }
	found, err := r.Resolve(t.Context(), ref("1"))
	require.NoError(t, err)
	for tag, same := range map[string]bool{"1-build1": true, "1-build2": false} {
		long, err := r.ResolveTo(t.Context(), ref(tag), found.Digest)
		require.NoError(t, err)
		assert.Equal(t, same, long.Digest == found.Digest, tag)
		_, kept := r.documents.all[release.Pin{Repository: host + "/app", Digest: long.Digest}]
		assert.Equal(t, same, kept, tag)
	}
	_, err = r.ResolveTo(t.Context(), ref("none"), found.Digest)
	require.ErrorIs(t, err, release.ErrNotFound)
	_, err = r.ResolveTo(t.Context(), ref("1-build1"), "sha256:short")
	require.ErrorIs(t, err, digest.ErrDigestInvalidLength)
	before := len(rec.sent)
	_, err = r.Describe(t.Context(), host+"/app", found.Digest)
	require.NoError(t, err)
	assert.Len(t, rec.sent, before+1, "the config")
}

func TestDocumentsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d documents
		describe := func(n, size int) ocispec.Descriptor {
			return ocispec.Descriptor{Digest: digest.FromString(strconv.Itoa(n)), Size: int64(size)}
		}
		has := func(n int) bool {
			_, is := d.all[release.Pin{Repository: "r", Digest: describe(n, 0).Digest}]
			return is
		}
		const half = maxDocuments/2 - documentCost
		keep := func(n, size int) { d.keep("r", describe(n, size).Digest, make([]byte, size)) }
		keep(1, half)
		keep(1, half)
		keep(2, half)
		assert.True(t, has(1) && has(2))
		keep(3, 1)
		assert.False(t, has(1), "the oldest one")
		assert.True(t, has(2) && has(3))
		assert.LessOrEqual(t, d.size, maxDocuments)
		_, is := d.take("other", describe(3, 1))
		assert.False(t, is, "another repository may need another login")
		_, is = d.take("r", describe(3, 2))
		assert.False(t, is, "another size")
		_, is = d.take("r", describe(3, 1))
		assert.True(t, is)
		assert.False(t, has(3))
		for n := range 2 * maxDocuments / documentCost {
			d.locate("r", manifest{desc: ocispec.Descriptor{
				MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString(strconv.Itoa(n)), Size: 1,
			}})
		}
		assert.LessOrEqual(t, d.size, maxDocuments, "many tags")
		keep(2, 1)
		<-time.After(documentAge)
		synctest.Wait()
		assert.False(t, has(2), "the pull is delayed")
		assert.Zero(t, d.size)
	})
}
