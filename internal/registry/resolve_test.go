// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
)

func TestDigestWithoutAHeader(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	desc := f.image(t, "linux", "amd64", nil)
	body := f.content[desc.Digest.String()]
	wrong := digest.FromString("wrong").String()
	hosts := []struct {
		title      string
		head       int    // status of HEAD
		headDigest string // and its digest
		getDigest  string
		want       string // error
		methods    string
	}{
		{"none at all", 200, "", "", "", "HEAD GET"},
		{"with GET only", 200, "", desc.Digest.String(), "", "HEAD GET"},
		{"no HEAD", 405, "", "", "", "HEAD GET"},
		{"wrong with GET", 405, "", wrong, "content has digest", "HEAD GET"},
		{"no digest with GET", 405, "", "sha1:x", `digest "sha1:x"`, "HEAD GET"},
		{"with HEAD", 200, desc.Digest.String(), "", "", "HEAD"},
	}
	for _, h := range hosts {
		t.Run(h.title, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.answer(func(w http.ResponseWriter, req *http.Request) {
				if req.Method == http.MethodHead {
					if h.headDigest != "" {
						w.Header().Set(digestHeader, h.headDigest)
					}
					w.WriteHeader(h.head)
					return
				}
				w.Header().Set("Content-Type", body.kind)
				w.Header().Set(digestHeader, h.getDigest)
				_, _ = w.Write(body.body)
			})
			r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
			got, err := r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
			var methods []string
			for _, line := range f.log() {
				method, _, _ := strings.Cut(line, " ")
				methods = append(methods, method)
			}
			assert.Equal(t, h.methods, strings.Join(methods, " "))
			if h.want != "" {
				require.ErrorContains(t, err, h.want)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, desc.Digest, got.Digest)
		})
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	t.Parallel()
	f := &fake{content: map[string]served{}}
	f.Server = httptest.NewUnstartedServer(f)
	f.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	f.Config.ErrorLog = log.New(io.Discard, "", 0)
	f.StartTLS()
	t.Cleanup(f.Close)
	r, _ := newRegistry(t, certsD(t, f.host(), f.tlsHost(t)))
	_, err := r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
	require.ErrorContains(t, err, "protocol version")
}

// containerd pulls through the same hosts and connections as polls.
func TestPullsAskTheSameHosts(t *testing.T) {
	t.Parallel()
	upstream, mirror := startDistribution(t), startDistribution(t)
	img := testImage(t, "linux/amd64")
	push(t, mirror+"/app:1", img)
	want, err := img.Digest()
	require.NoError(t, err)
	r, rec := newRegistry(t, certsD(t, upstream, plainHTTP(upstream)+"[host.\"http://"+mirror+"\"]\n"))
	_, err = r.Resolve(t.Context(), release.Reference{Repository: upstream + "/app", Tag: "1"})
	require.NoError(t, err)

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
	assertKept(t, r, 1)
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
