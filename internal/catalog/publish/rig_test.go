// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/catalog/store"
)

var (
	amd64 = []ocispec.Platform{{OS: "linux", Architecture: "amd64"}}
	noon  = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
)

// rig is a registry in memory.
type rig struct {
	t       testing.TB
	host    string
	handler http.Handler
}

func newRig(t testing.TB) *rig {
	t.Helper()
	// Its tag list and manifests are behind locks, its answers those of the specification.
	handler := &untagging{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return &rig{t: t, host: strings.TrimPrefix(server.URL, "http://"), handler: handler}
}

// direct sends requests to a registry without a network: for tests that send many.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r = r.Clone(r.Context())
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// untagging deletes a manifest with all its tags, as real registries do.
type untagging struct {
	http.Handler

	mu   sync.Mutex
	tags map[string]string // by path: digest
}

func (u *untagging) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header()["Date"] = nil // publishers of tests have clocks of their own
	repository, name, is := strings.Cut(r.URL.Path, "/manifests/")
	if !is || r.Method != http.MethodPut && r.Method != http.MethodDelete {
		u.Handler.ServeHTTP(w, r)
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.Handler.ServeHTTP(w, r)
	if r.Method == http.MethodPut {
		if u.tags == nil {
			u.tags = map[string]string{}
		}
		u.tags[r.URL.Path] = w.Header().Get("Docker-Content-Digest")
		return
	}
	for path, d := range u.tags {
		if d == name && strings.HasPrefix(path, repository+"/manifests/") {
			delete(u.tags, path)
			again := r.Clone(r.Context())
			again.URL.Path = path
			u.Handler.ServeHTTP(httptest.NewRecorder(), again)
		}
	}
}

func (r *rig) repository() string { return r.host + "/catalog" }

// push stores an image and returns its digest.
func (r *rig) push(repository, content string, tags ...string) string {
	r.t.Helper()
	image, err := mutate.AppendLayers(empty.Image, static.NewLayer([]byte(content), types.DockerLayer))
	require.NoError(r.t, err)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS: "linux", Architecture: "amd64", Created: v1.Time{Time: noon}, RootFS: v1.RootFS{Type: "layers"},
	})
	require.NoError(r.t, err)
	for _, tag := range tags {
		ref, err := name.NewTag(r.host + "/" + repository + ":" + tag)
		require.NoError(r.t, err)
		require.NoError(r.t, remote.Write(ref, image, remote.WithContext(r.t.Context()), remote.WithTransport(direct{r.handler})))
	}
	d, err := image.Digest()
	require.NoError(r.t, err)
	return d.String()
}

// publisher returns one without waits.
func (r *rig) publisher(edit func(*publish.Options)) *publish.Publisher {
	r.t.Helper()
	o := publish.Options{
		Repository: r.repository(), Now: func() time.Time { return noon },
		Store: store.Options{UserAgent: "test", Keychain: authn.NewMultiKeychain()},
	}
	if edit != nil {
		edit(&o)
	}
	p, err := publish.New(o)
	require.NoError(r.t, err)
	return p
}

func (r *rig) image(text string) publish.Wanted {
	r.t.Helper()
	i, err := publish.ParseImage(r.host + "/" + text)
	require.NoError(r.t, err)
	return publish.Wanted{Text: text, Image: i}
}

// add adds images to a channel.
func (r *rig) add(p *publish.Publisher, channel string, images ...string) (publish.Result, error) {
	r.t.Helper()
	return r.addTo(p, channel, "", images...)
}

// addTo adds images to a set of a channel.
func (r *rig) addTo(p *publish.Publisher, channel, set string, images ...string) (publish.Result, error) {
	r.t.Helper()
	var wanted []publish.Wanted
	for _, i := range images {
		w := r.image(i)
		w.Set = set
		wanted = append(wanted, w)
	}
	changes, err := p.Added(r.t.Context(), wanted, amd64)
	if err != nil {
		return publish.Result{}, err
	}
	return p.Change(r.t.Context(), channel, added(changes...), publish.How{})
}

func (r *rig) begin(p *publish.Publisher, channels ...string) {
	r.t.Helper()
	for _, channel := range channels {
		r.does(p, channel, publish.Refresh(time.Time{}), publish.How{New: true})
	}
}

// does changes a channel.
func (r *rig) does(p *publish.Publisher, channel string, do publish.Verb, how publish.How) publish.Result {
	r.t.Helper()
	got, err := p.Change(r.t.Context(), channel, do, how)
	require.NoError(r.t, err)
	return got
}

// lists pushes images, and has a channel list them in a set.
func (r *rig) lists(p *publish.Publisher, channel, set string, images ...string) publish.Result {
	r.t.Helper()
	got, err := r.addSet(p, channel, set, images...)
	require.NoError(r.t, err)
	return got
}

// read returns the newest version of a channel.
func (r *rig) read(p *publish.Publisher, channel string) publish.Version {
	r.t.Helper()
	v, err := p.Read(r.t.Context(), channel)
	require.NoError(r.t, err)
	return v
}

// isWell checks that there is nothing wrong with a channel.
func (r *rig) isWell(p *publish.Publisher, channel string, when ...any) {
	r.t.Helper()
	findings, err := p.Verify(r.t.Context(), channel, true)
	require.NoError(r.t, err)
	assert.Empty(r.t, findings, when...)
}

// listed returns the tags that a channel lists of an image; those that are withdrawn with a "-".
func (r *rig) listed(p *publish.Publisher, channel, repository string) []string {
	r.t.Helper()
	v, err := p.Read(r.t.Context(), channel)
	require.NoError(r.t, err)
	pages, err := p.Pages(r.t.Context(), v, r.host+"/"+repository)
	require.NoError(r.t, err)
	var out []string
	for _, release := range pages[r.host+"/"+repository].Releases {
		sign := ""
		if release.Withdrawn != nil {
			sign = "-"
		}
		out = append(out, sign+release.Tag)
	}
	return out
}

// client reads and writes past the publishers.
func (r *rig) client() *store.Client {
	r.t.Helper()
	c, err := store.New(store.Options{Keychain: authn.NewMultiKeychain()})
	require.NoError(r.t, err)
	return c
}

// remove deletes what tags of the catalog name.
func (r *rig) remove(tags ...string) {
	r.t.Helper()
	c := r.client()
	for _, tag := range tags {
		d, err := c.Head(r.t.Context(), r.repository(), tag)
		require.NoError(r.t, err)
		require.NoError(r.t, c.Remove(r.t.Context(), r.repository(), d))
	}
}

// removeOps deletes all ops of a channel.
func (r *rig) removeOps(channel string) {
	r.t.Helper()
	r.remove(slices.DeleteFunc(r.tags(), func(tag string) bool {
		of, ok := catalog.OpChannel(tag)
		return !ok || of != channel
	})...)
}

// newKey returns a private key in PEM, and its public one.
func newKey(t testing.TB) (private, public []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(t, err)
	private = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	der, err = x509.MarshalPKIXPublicKey(k.Public())
	require.NoError(t, err)
	return private, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func parsedKey(t testing.TB, private []byte) *publish.Key {
	t.Helper()
	k, err := publish.ParseKey(private, func() ([]byte, error) { return nil, errors.New("no password") })
	require.NoError(t, err)
	return k
}

// killed ends a publisher before its n-th request that writes: that request and all after it fail
// for good.
type killed struct {
	at     int64
	writes atomic.Int64
	after  bool // the request itself still reaches the registry
}

var errKilled = errors.New("killed")

func (k *killed) RoundTrip(r *http.Request) (*http.Response, error) {
	n := k.writes.Load()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		n = k.writes.Add(1)
		if n == k.at && k.after {
			if resp, err := http.DefaultTransport.RoundTrip(r); err == nil {
				_ = resp.Body.Close()
			}
		}
	}
	if n >= k.at {
		return nil, errKilled
	}
	return http.DefaultTransport.RoundTrip(r)
}

// answered is an answer that no registry has given.
func answered(r *http.Request, status int, body string) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r,
		ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// flaky fails a share of the requests with what distribution 2.8 says.
type flaky struct{ count atomic.Int64 }

func (f *flaky) RoundTrip(r *http.Request) (*http.Response, error) {
	n := f.count.Add(1)
	switch {
	case n%7 == 3:
		return answered(r, http.StatusInternalServerError, `{"errors":[{"code":"UNKNOWN"}]}`)
	case n%11 == 5 && r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/blobs/"):
		return answered(r, http.StatusBadRequest, `{"errors":[{"code":"DIGEST_INVALID"}]}`)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// every fails each n-th request.
type every struct {
	http.RoundTripper

	n     int64
	count atomic.Int64
}

func (e *every) RoundTrip(r *http.Request) (*http.Response, error) {
	if e.count.Add(1)%e.n == 0 {
		return answered(r, http.StatusServiceUnavailable, "")
	}
	return e.RoundTripper.RoundTrip(r)
}

// bare removes the headers that a registry need not send.
type bare struct{ http.RoundTripper }

func (b bare) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Header.Del("Docker-Content-Digest")
	}
	return resp, err
}

// selection is what a verb has drafted.
type selection struct {
	Changes []catalog.Change
	Skipped []publish.Outcome
}

func drafted(ctx context.Context, p *publish.Publisher, channel string, do publish.Verb) (out selection, err error) {
	v, err := p.View(ctx, channel)
	if err != nil {
		return out, err
	}
	d, err := do(ctx, v)
	for _, op := range d.Ops {
		out.Changes = append(out.Changes, op.Changes...)
	}
	for _, o := range d.Outcomes {
		if o.Skipped {
			out.Skipped = append(out.Skipped, o)
		}
	}
	return out, err
}

func selected(ctx context.Context, p *publish.Publisher, from, to string, s publish.Selection) (selection, error) {
	offer, err := p.Offer(ctx, from)
	if err != nil {
		return selection{}, err
	}
	return drafted(ctx, p, to, publish.Promote(offer, publish.Promotion{Selection: s}))
}

// memory is a registry of one catalog without a network. It has every image. It can be copied.
type memory struct {
	mu        sync.Mutex
	tags      map[string]digest.Digest
	manifests map[digest.Digest][]byte
	blobs     map[digest.Digest][]byte
}

const memoryRepository = "registry.example.com/catalog"

func newMemory() *memory {
	return &memory{tags: map[string]digest.Digest{}, manifests: map[digest.Digest][]byte{}, blobs: map[digest.Digest][]byte{}}
}

func (m *memory) clone() *memory {
	return &memory{tags: maps.Clone(m.tags), manifests: maps.Clone(m.manifests), blobs: maps.Clone(m.blobs)}
}

func (m *memory) find(name string) (digest.Digest, []byte, error) {
	d := digest.Digest(name)
	if d.Validate() != nil {
		d = m.tags[name]
	}
	body, ok := m.manifests[d]
	if !ok {
		return "", nil, fmt.Errorf("%s: %w", name, release.ErrNotFound)
	}
	return d, body, nil
}

func (m *memory) Head(_ context.Context, repository, name string) (digest.Digest, error) {
	if repository != memoryRepository {
		return digest.Digest(name), nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	d, _, err := m.find(name)
	return d, err
}

func (m *memory) Manifest(_ context.Context, _, name string) (string, []byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, body, err := m.find(name)
	return ocispec.MediaTypeImageManifest, body, err
}

func (m *memory) Blob(_ context.Context, _ string, desc ocispec.Descriptor) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, ok := m.blobs[desc.Digest]
	if !ok {
		return nil, fmt.Errorf("%s: %w", desc.Digest, release.ErrNotFound)
	}
	return data, nil
}

func (m *memory) Tags(context.Context, string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for tag := range m.tags {
		out = append(out, tag)
	}
	return out, nil
}

func (m *memory) PutBlob(_ context.Context, _ string, data []byte) (catalog.BlobRef, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := digest.FromBytes(data)
	m.blobs[d] = data
	return catalog.BlobRef{Digest: d, Size: int64(len(data))}, nil
}

func (m *memory) PutManifest(_ context.Context, _, tag string, body []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := digest.FromBytes(body)
	m.manifests[d], m.tags[tag] = body, d
	return nil
}

func (m *memory) Remove(_ context.Context, _ string, d digest.Digest) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.manifests, d)
	maps.DeleteFunc(m.tags, func(_ string, is digest.Digest) bool { return is == d })
	return nil
}

func (m *memory) Referrers(context.Context, string, digest.Digest) ([]ocispec.Descriptor, error) {
	return nil, release.ErrNotFound
}

// stopped is a registry that does something before the n-th request of its publisher, and, where it kills, answers none
// from then on.
type stopped struct {
	*memory

	at    int
	do    func()
	kills bool

	n    int
	what string // that request; empty: it did not come
}

// before counts a request. Publishers of these tests send one at a time.
func (s *stopped) before(ctx context.Context, what string) error {
	if s.n++; s.n == s.at {
		s.what = what
		if s.do != nil {
			s.do()
		}
	}
	if s.kills && s.n >= s.at {
		return errKilled
	}
	return ctx.Err()
}

func (s *stopped) Head(ctx context.Context, repository, name string) (digest.Digest, error) {
	if repository != memoryRepository {
		return s.memory.Head(ctx, repository, name)
	}
	if err := s.before(ctx, "HEAD "+name); err != nil {
		return "", err
	}
	return s.memory.Head(ctx, repository, name)
}

func (s *stopped) Manifest(ctx context.Context, repository, name string) (string, []byte, error) {
	if err := s.before(ctx, "GET "+name); err != nil {
		return "", nil, err
	}
	return s.memory.Manifest(ctx, repository, name)
}

func (s *stopped) Blob(ctx context.Context, repository string, desc ocispec.Descriptor) ([]byte, error) {
	if err := s.before(ctx, "GET blob"); err != nil {
		return nil, err
	}
	return s.memory.Blob(ctx, repository, desc)
}

func (s *stopped) Tags(ctx context.Context, repository string) ([]string, error) {
	if err := s.before(ctx, "GET tags"); err != nil {
		return nil, err
	}
	return s.memory.Tags(ctx, repository)
}

func (s *stopped) PutBlob(ctx context.Context, repository string, data []byte) (catalog.BlobRef, error) {
	if err := s.before(ctx, "PUT blob"); err != nil {
		return catalog.BlobRef{}, err
	}
	return s.memory.PutBlob(ctx, repository, data)
}

func (s *stopped) PutManifest(ctx context.Context, repository, tag string, body []byte) error {
	what := "PUT " + tag
	if strings.HasPrefix(tag, "op-") {
		what = "PUT op"
	}
	if err := s.before(ctx, what); err != nil {
		return err
	}
	return s.memory.PutManifest(ctx, repository, tag, body)
}

func (s *stopped) Remove(ctx context.Context, repository string, d digest.Digest) error {
	if err := s.before(ctx, "DELETE"); err != nil {
		return err
	}
	return s.memory.Remove(ctx, repository, d)
}
