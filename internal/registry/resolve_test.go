// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// containerd pulls through the same hosts and connections as polls.
func TestPullsAskTheSameHosts(t *testing.T) {
	t.Parallel()
	upstream, mirror := startDistribution(t), startDistribution(t)
	img := testImage(t, "linux/amd64")
	push(t, mirror+"/app:1", img)
	want, err := img.Digest()
	require.NoError(t, err)
	r, rec := newRegistry(t, certsD(t, upstream, plainHTTP(upstream)+"[host.\"http://"+mirror+"\"]\n"))
	resolve := func() {
		_, err := r.Resolve(t.Context(), release.Reference{Repository: upstream + "/app", Tag: "1"})
		assert.NoError(t, err)
	}
	resolve()
	desc, err := r.Locate(t.Context(), upstream+"/app", digest.Digest(want.String()))
	require.NoError(t, err)
	assert.Equal(t, want.String(), desc.Digest.String())
	body, err := r.Fetch(t.Context(), upstream+"/app", desc)
	require.NoError(t, err)
	got, err := io.ReadAll(body)
	require.NoError(t, err)
	require.NoError(t, body.Close())
	assert.Equal(t, want.String(), digest.FromBytes(got).String())

	for _, req := range rec.sent {
		assert.Equal(t, mirror, req.URL.Host)
		assert.Equal(t, []string{"image-update-agent/1.2.3"}, req.Header["User-Agent"])
	}
	assert.Len(t, rec.sent, 2, "the HEAD of the tag and the manifest")
	assertKept(t, r, resolve)
}

// The limit of metadata requests does not apply to a blob in a pull.
func TestPullsReadBigBlobs(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	big := f.set("application/octet-stream", make([]byte, maxManifest*2))
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
	body, err := r.Fetch(t.Context(), f.repository(), big)
	require.NoError(t, err)
	n, err := io.Copy(io.Discard, body)
	require.NoError(t, err)
	require.NoError(t, body.Close())
	assert.Equal(t, big.Size, n)
}

// An answer says which host failed before it, and that containerd ignores a hosts.toml which it cannot parse. A mirror
// without the image has not failed.
func TestAnswerSaysWhatFailedBefore(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{http.StatusServiceUnavailable: true, http.StatusNotFound: false} {
		mirror, upstream := newFake(t), newFake(t)
		upstream.tag("1", upstream.image(t, "linux", "amd64", nil))
		mirror.answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		r, _ := newRegistry(t, certsD(t, upstream.host(), plainHTTP(upstream.host())+fmt.Sprintf("[host.\"http://%s\"]\n", mirror.host())))
		by, err := r.Resolve(t.Context(), release.Reference{Repository: upstream.repository(), Tag: "1"})
		require.NoError(t, err)
		assert.Equal(t, upstream.host(), by.Host)
		assert.Equal(t, want, by.Skipped != nil, status)
		if want {
			assert.Equal(t, mirror.host(), by.Skipped.Host)
		}
		assert.Empty(t, by.HostsIgnored)
	}
	upstream := newFake(t)
	upstream.tag("1", upstream.image(t, "linux", "amd64", nil))
	r, _ := newRegistry(t, certsD(t, upstream.host(), "server = \n"))
	by, err := r.Resolve(t.Context(), release.Reference{Repository: upstream.repository(), Tag: "1"})
	require.NoError(t, err)
	assert.Contains(t, by.HostsIgnored, "hosts.toml is ignored: ")
	assert.Nil(t, by.Skipped)
}

func TestPollOf20ImagesIs20Heads(t *testing.T) {
	t.Parallel()
	host := startDistribution(t)
	var refs []release.Reference
	want := map[release.Reference]digest.Digest{}
	for i := range 20 {
		ref := release.Reference{Repository: fmt.Sprintf("%s/caasp/v4/app%d", host, i), Tag: "1.0-rev1"}
		img := testImage(t, "linux/amd64")
		push(t, ref.String(), img)
		d, err := img.Digest()
		require.NoError(t, err)
		refs, want[ref] = append(refs, ref), digest.Digest(d.String())
	}
	r, rec := newRegistry(t, certsD(t, host, plainHTTP(host)))
	for cycle := range 2 {
		for _, ref := range refs {
			got, err := r.Resolve(t.Context(), ref)
			require.NoError(t, err)
			assert.Equal(t, release.Resolved{Digest: want[ref], Host: host, Insecure: true}, got)
		}
		assert.Equal(t, uint64(20*(cycle+1)), r.Counts().Requests)
	}
	for _, line := range rec.lines() {
		assert.True(t, strings.HasPrefix(line, http.MethodHead+" "), line)
	}
	assertKept(t, r, func() { _, _ = r.Resolve(t.Context(), refs[0]) })
	assert.Zero(t, r.Counts().Tokens)
	assert.NotZero(t, r.Counts().Sent)
	assert.NotZero(t, r.Counts().Received)
}
