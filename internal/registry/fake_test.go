// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bufio"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
)

// fake is a registry that can be faulty in every way. It serves content under the repository app by digest, and the tag
// 1 for the digest tagged.
type fake struct {
	*httptest.Server
	mu      sync.Mutex
	content map[string]served // by the last element of the path
	before  http.HandlerFunc  // runs first; if it writes, that is the answer
	asked   []*http.Request
}

type served struct {
	kind   string
	body   []byte
	digest string // header; empty: none
}

func newFake(t testing.TB) *fake {
	t.Helper()
	f := &fake{content: map[string]served{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func newTLSFake(t testing.TB) *fake {
	t.Helper()
	f := &fake{content: map[string]served{}}
	f.Server = httptest.NewTLSServer(f)
	t.Cleanup(f.Close)
	return f
}

// host returns host:port, which is also the namespace.
func (f *fake) host() string { return f.Listener.Addr().String() }

func (f *fake) repository() string { return f.host() + "/app" }

// ca writes the certificate of a TLS fake to a file.
func (f *fake) ca(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fake.crt")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
	require.NoError(t, os.WriteFile(path, block, 0o600))
	return path
}

// pool returns the authorities for a TLS fake.
func (f *fake) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(f.Certificate())
	return pool
}

// tlsHost returns the hosts.toml of a namespace that is a TLS fake.
func (f *fake) tlsHost(t testing.TB) string {
	return "server = \"https://" + f.host() + "\"\nca = \"" + f.ca(t) + "\"\n"
}

type written struct {
	http.ResponseWriter
	done bool
}

func (w *written) WriteHeader(code int)        { w.done = true; w.ResponseWriter.WriteHeader(code) }
func (w *written) Write(p []byte) (int, error) { w.done = true; return w.ResponseWriter.Write(p) }
func (w *written) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.done = true
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

func (f *fake) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	w := &written{ResponseWriter: rw}
	f.mu.Lock()
	f.asked = append(f.asked, req)
	before := f.before
	last := req.URL.Path[strings.LastIndexByte(req.URL.Path, '/')+1:]
	c, ok := f.content[last]
	f.mu.Unlock()
	if before != nil {
		if before(w, req); w.done {
			return
		}
	}
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", c.kind)
	if c.digest != "" {
		w.Header().Set("Docker-Content-Digest", c.digest)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(c.body)))
	_, _ = w.Write(c.body)
}

// set serves a body under its digest and returns its descriptor.
func (f *fake) set(kind string, body []byte) ocispec.Descriptor {
	d := digest.FromBytes(body)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.content[d.String()] = served{kind, body, d.String()}
	return ocispec.Descriptor{MediaType: kind, Digest: d, Size: int64(len(body))}
}

// tag serves the content of desc under a tag.
func (f *fake) tag(tag string, desc ocispec.Descriptor) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.content[tag] = f.content[desc.Digest.String()]
}

func (f *fake) answer(h http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = h
}

// log returns the requests as "HEAD /v2/...?query Authorization".
func (f *fake) log() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var lines []string
	for _, req := range f.asked {
		lines = append(lines, strings.TrimSpace(req.Method+" "+req.URL.RequestURI()+" "+req.Header.Get("Authorization")))
	}
	return lines
}

// image serves an image for a platform; edit may change its manifest before its digest is computed.
func (f *fake) image(t testing.TB, os, arch string, edit func(map[string]any)) ocispec.Descriptor {
	t.Helper()
	config := f.set("application/octet-stream", encode(t, map[string]any{"os": os, "architecture": arch}))
	config.MediaType = ocispec.MediaTypeImageConfig
	return f.manifest(t, config, edit)
}

func (f *fake) manifest(t testing.TB, config ocispec.Descriptor, edit func(map[string]any)) ocispec.Descriptor {
	t.Helper()
	manifest := map[string]any{
		"schemaVersion": 2,
		"mediaType":     images.MediaTypeDockerSchema2Manifest,
		"config":        config,
		"layers":        []ocispec.Descriptor{{MediaType: images.MediaTypeDockerSchema2LayerGzip, Digest: digest.FromString("layer"), Size: 1000}},
	}
	if edit != nil {
		edit(manifest)
	}
	return f.set(images.MediaTypeDockerSchema2Manifest, encode(t, manifest))
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return data
}
