// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ggcr "github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubic-project/image-update-agent/internal/registry"
	"github.com/kubic-project/image-update-agent/internal/registry/layout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	_ Fetcher = (*registry.Registry)(nil)
	_ Fetcher = (*layout.Layout)(nil)
)

// mirrored pushes a fixture to a mirror of registry.suse.com, with or without the referrers API, and returns the mirror
// as a source.
func mirrored(t *testing.T, s *shelf, referrers bool) *registry.Registry {
	t.Helper()
	server := httptest.NewServer(ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)), ggcr.WithReferrersSupport(referrers)))
	t.Cleanup(server.Close)
	_, path, _ := strings.Cut(s.Repository, "/")
	send := func(method, url, contentType, body string) {
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/v2/"+path+url, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", contentType)
		resp, err := server.Client().Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusCreated, resp.StatusCode)
	}
	for d, blob := range s.Blobs {
		send(http.MethodPost, "/blobs/uploads/?digest="+d.String(), "application/octet-stream", blob)
	}
	for _, indexes := range []bool{false, true} { // children first
		for d, m := range s.Manifests {
			if (m.MediaType == ocispec.MediaTypeImageIndex) == indexes {
				send(http.MethodPut, "/manifests/"+d.String(), m.MediaType, m.Body)
			}
		}
	}
	for tag, d := range s.Tags {
		send(http.MethodPut, "/manifests/"+tag, s.Manifests[d].MediaType, s.Manifests[d].Body)
	}
	certs := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(certs, "registry.suse.com"), 0o700))
	write(t, filepath.Join(certs, "registry.suse.com", "hosts.toml"), []byte("server = \""+server.URL+"\"\n"))
	r := registry.New(registry.Options{CertsDirs: []string{certs}})
	t.Cleanup(r.Close)
	return r
}

// on writes a fixture as an OCI layout, as `skopeo copy` does with its tags; with referrers among the entries, as oras
// does.
func on(t *testing.T, s *shelf, withReferrers bool) *layout.Layout {
	t.Helper()
	dir := t.TempDir()
	blobs := filepath.Join(dir, "blobs", "sha256")
	require.NoError(t, os.MkdirAll(blobs, 0o700))
	for d, blob := range s.Blobs {
		write(t, filepath.Join(blobs, d.Encoded()), []byte(blob))
	}
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	for d, m := range s.Manifests {
		write(t, filepath.Join(blobs, d.Encoded()), []byte(m.Body))
		if withReferrers && strings.Contains(m.Body, `"subject"`) {
			index.Manifests = append(index.Manifests, ocispec.Descriptor{
				MediaType: m.MediaType, Digest: d, Size: int64(len(m.Body)), ArtifactType: bundleMediaType,
			})
		}
	}
	for tag, d := range s.Tags {
		m := s.Manifests[d]
		index.Manifests = append(index.Manifests, ocispec.Descriptor{
			MediaType: m.MediaType, Digest: d, Size: int64(len(m.Body)),
			Annotations: map[string]string{ocispec.AnnotationRefName: s.Repository + ":" + tag},
		})
	}
	body, err := json.Marshal(index)
	require.NoError(t, err)
	write(t, filepath.Join(dir, "index.json"), body)
	write(t, filepath.Join(dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`))
	l, err := layout.Open(dir, layout.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// The same signatures from all kinds of sources.
func TestSources(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fixture, key, format string
		api                  bool // needs the referrers API
	}{
		{"suse-rsa4096", "rsa4096", SimpleSigning, false},
		{"cosign2-p256", "p256", SimpleSigning, false},
		{"cosign3-p256", "p256", Bundle, true},
		{"cosign3-ed25519", "ed25519", Bundle, true},
		{"blob-rsa3072", "rsa3072", Bundle, true},
		{"fallback", "p256", Bundle, false},
	} {
		for way, open := range map[string]func(*testing.T, *shelf, bool) Fetcher{
			"registry": func(t *testing.T, s *shelf, api bool) Fetcher { return mirrored(t, s, api) },
			"layout":   func(t *testing.T, s *shelf, api bool) Fetcher { return on(t, s, api) },
		} {
			for _, api := range []bool{true, false} {
				t.Run(c.fixture+" in a "+way, func(t *testing.T) {
					t.Parallel()
					s := fixture(t, c.fixture)
					from := open(t, s, api)
					got, err := with(t, c.key).Verify(t.Context(), from, s.Repository, s.Index, s.Platform)
					if c.api && !api {
						require.ErrorIs(t, err, ErrUnsigned)
						return
					}
					require.NoError(t, err)
					assert.Equal(t, c.format, got.Format)
					assert.Equal(t, s.Index, got.Signed)
					_, err = with(t, "other").Verify(t.Context(), from, s.Repository, s.Index, s.Platform)
					require.ErrorIs(t, err, ErrWrong)
					_, err = with(t, c.key).Verify(t.Context(), from, s.Repository, digest.FromString("later"), "")
					require.ErrorIs(t, err, ErrUnsigned)
				})
			}
		}
	}
}

func TestRegistryAway(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	// The local end of a connection has no listener, and its port is not reused meanwhile.
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close()) }()
	host := conn.LocalAddr().String()
	r := registry.New(registry.Options{})
	t.Cleanup(r.Close)
	_, err = with(t, "p256").Verify(t.Context(), r, host+"/app", digest.FromString("image"), "")
	require.ErrorContains(t, err, "connection refused")
	require.NotErrorIs(t, err, ErrUnsigned)
	require.NotErrorIs(t, err, ErrWrong)
}
