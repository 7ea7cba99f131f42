// SPDX-License-Identifier: Apache-2.0

package channel_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	memory "github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	agentcatalog "github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/channel"
	"github.com/kubic-project/image-update-agent/internal/registry"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
)

const (
	host  = "registry.example.com"
	name  = host + "/catalog"
	velum = "registry.suse.com/caasp/v4/velum"
	other = "registry.suse.com/caasp/v4/other"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// world is a registry in memory that a test can make fail. internal/registry and e2e ask real ones.
type world struct {
	t        *testing.T
	upstream http.Handler
	dir      string // of the node's state
	keys     signer
	registry *registry.Registry
	now      time.Time // of the node

	mu        sync.Mutex
	requests  int
	intercept func(w http.ResponseWriter, r *http.Request) bool
	channel   *channel.Channel
}

// signer is a Verifier for which digests are signed by hand.
type signer struct {
	signed  map[digest.Digest]string
	trusted *[]string
}

func (s signer) Signers(_ context.Context, r release.Release) ([]string, error) {
	key, ok := s.signed[r.Digest]
	switch {
	case !ok:
		return nil, release.ErrUnsigned
	case key != "ours":
		return nil, release.ErrForged
	}
	return []string{key}, nil
}

func (s signer) Trusts(_ context.Context, keys []string) (bool, error) {
	return slices.ContainsFunc(keys, func(key string) bool { return slices.Contains(*s.trusted, key) }), nil
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, now: noon, upstream: memory.New(memory.Logger(log.New(io.Discard, "", 0))), dir: filepath.Join(t.TempDir(), "catalog"),
		keys: signer{map[digest.Digest]string{}, &[]string{"ours"}},
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.requests++
		intercept := w.intercept
		w.mu.Unlock()
		if intercept == nil || !intercept(rw, r) {
			w.upstream.ServeHTTP(rw, r)
		}
	}))
	t.Cleanup(proxy.Close)
	certs := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(certs, host), 0o755))
	require.NoError(t, os.WriteFile(
		filepath.Join(certs, host, "hosts.toml"), fmt.Appendf(nil, "server = %q\n", proxy.URL), 0o600,
	))
	w.registry = registry.New(registry.Options{Options: transport.Options{Version: "test"}, CertsDirs: []string{certs}})
	t.Cleanup(w.registry.Close)
	w.restart()
	return w
}

// restart starts with what is on the disk.
func (w *world) restart() {
	w.channel = channel.New(channel.Options{
		Repository: name, Channel: "prod", Dir: w.dir, From: w.registry, Verifier: w.keys,
		Signatures: policy.SignaturesRequire, Now: func() time.Time { return w.now },
	})
}

func (w *world) refresh(images ...string) (agentcatalog.Listing, error) {
	if images == nil {
		images = []string{velum}
	}
	return w.channel.Refresh(w.t.Context(), images)
}

// sent counts the requests since the last call.
func (w *world) sent() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.requests
	w.requests = 0
	return n
}

func (w *world) answer(f func(w http.ResponseWriter, r *http.Request) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.intercept = f
}

// version is a manifest of the channel, with pages of n builds of velum and one of other.
func version(v uint64, n int) (catalog.Manifest, []catalog.Page) {
	page := catalog.Page{Image: velum, Releases: []catalog.Release{}}
	for b := n; b > 0; b-- {
		page.Releases = append(page.Releases, catalog.Release{
			Tag: fmt.Sprintf("4.0.0-rev1-build1.%d", b), Digest: digest.FromString(fmt.Sprint(b)), Created: noon,
		})
	}
	more := catalog.Page{Image: other, Releases: []catalog.Release{{Tag: "1-rev1-build1.1", Digest: digest.FromString("other")}}}
	return catalog.Manifest{
		Name: name, Channel: "prod", Version: v, Created: noon, Times: catalog.Times{Expires: noon.Add(time.Hour)},
	}, []catalog.Page{more, page}
}

// publish signs a version and moves the channel to it.
func (w *world) publish(m catalog.Manifest, pages []catalog.Page) digest.Digest {
	w.t.Helper()
	m.Pages = nil
	for _, p := range pages {
		data, err := p.Encode()
		require.NoError(w.t, err)
		m.Pages = append(m.Pages, catalog.PageRef{Image: p.Image, Digest: w.blob(data), Size: int64(len(data))})
	}
	data, d, err := m.Encode()
	require.NoError(w.t, err)
	w.keys.signed[d] = "ours"
	w.put("prod", data)
	return d
}

// put moves the channel's tag to a manifest.
func (w *world) put(tag string, data []byte) {
	w.t.Helper()
	w.blob([]byte("{}"))
	w.do(http.MethodPut, "/v2/catalog/manifests/"+tag, ocispec.MediaTypeImageManifest, data)
}

func (w *world) blob(data []byte) digest.Digest {
	w.t.Helper()
	d := digest.FromBytes(data)
	w.do(http.MethodPost, "/v2/catalog/blobs/uploads/?digest="+d.String(), "application/octet-stream", data)
	return d
}

func (w *world) do(method, at, contentType string, body []byte) {
	w.t.Helper()
	req := httptest.NewRequestWithContext(w.t.Context(), method, at, bytes.NewReader(body))
	req.Header.Set("Content-Type", contentType)
	rec := httptest.NewRecorder()
	w.upstream.ServeHTTP(rec, req)
	require.Less(w.t, rec.Code, 300, "%s %s: %s", method, at, rec.Body)
}
