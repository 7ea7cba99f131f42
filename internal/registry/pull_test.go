// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
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

// An interrupted layer is resumed.
func TestTornLayerIsResumed(t *testing.T) {
	t.Parallel()
	const layer = "the whole layer"
	f := newFake(t)
	var times atomic.Int32
	f.answer(func(w http.ResponseWriter, req *http.Request) {
		if times.Add(1) == 1 {
			w.Header().Set("Content-Length", strconv.Itoa(len(layer)))
			_, _ = io.WriteString(w, layer[:4])
			return
		}
		assert.Equal(t, "bytes=4-", req.Header.Get("Range"))
		w.Header().Set("Content-Range", fmt.Sprintf("bytes 4-%d/%d", len(layer)-1, len(layer)))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = io.WriteString(w, layer[4:])
	})
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
	require.NoError(t, fetch(t, r, f.repository(), layer))
	assert.Len(t, f.log(), 2)
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
