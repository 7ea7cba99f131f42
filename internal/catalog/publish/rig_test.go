// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"bytes"
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
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
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
		require.NoError(r.t, remote.Write(ref, image, remote.WithContext(r.t.Context())))
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
	var wanted []publish.Wanted
	for _, i := range images {
		wanted = append(wanted, r.image(i))
	}
	changes, err := p.Added(r.t.Context(), wanted, amd64)
	if err != nil {
		return publish.Result{}, err
	}
	return change(r.t.Context(), p, request{Channel: channel, Do: catalog.ActionAdd, Changes: changes})
}

func (r *rig) begin(p *publish.Publisher, channels ...string) {
	r.t.Helper()
	for _, channel := range channels {
		_, err := change(r.t.Context(), p, request{Channel: channel, Do: catalog.ActionRefresh, New: true})
		require.NoError(r.t, err)
	}
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

// remove deletes what tags of the catalog name.
func (r *rig) remove(tags ...string) {
	r.t.Helper()
	c, err := store.New(store.Options{Keychain: authn.NewMultiKeychain()})
	require.NoError(r.t, err)
	for _, tag := range tags {
		d, err := c.Head(r.t.Context(), r.repository(), tag)
		require.NoError(r.t, err)
		require.NoError(r.t, c.Remove(r.t.Context(), r.repository(), d))
	}
}

// removeOps deletes all ops of a channel.
func (r *rig) removeOps(channel string) {
	r.t.Helper()
	c, err := store.New(store.Options{Keychain: authn.NewMultiKeychain()})
	require.NoError(r.t, err)
	tags, err := c.Tags(r.t.Context(), r.repository())
	require.NoError(r.t, err)
	r.remove(slices.DeleteFunc(tags, func(tag string) bool {
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
	mu     sync.Mutex
	log    []string
}

var errKilled = errors.New("killed")

func (k *killed) RoundTrip(r *http.Request) (*http.Response, error) {
	n := k.writes.Load()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		n = k.writes.Add(1)
		k.mu.Lock()
		k.log = append(k.log, fmt.Sprintf("%s %s", r.Method, r.URL.Path))
		k.mu.Unlock()
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

// flaky fails a share of the requests with what distribution 2.8 says.
type flaky struct{ count atomic.Int64 }

func (f *flaky) RoundTrip(r *http.Request) (*http.Response, error) {
	n := f.count.Add(1)
	answer := func(status int, body string) (*http.Response, error) {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return &http.Response{
			StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewBufferString(body)), Request: r,
			ProtoMajor: 1, ProtoMinor: 1,
		}, nil
	}
	switch {
	case n%7 == 3:
		return answer(http.StatusInternalServerError, `{"errors":[{"code":"UNKNOWN"}]}`)
	case n%11 == 5 && r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/blobs/"):
		return answer(http.StatusBadRequest, `{"errors":[{"code":"DIGEST_INVALID"}]}`)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// every fails each n-th request.
type every struct {
	n     int64
	count atomic.Int64
}

func (e *every) RoundTrip(r *http.Request) (*http.Response, error) {
	if e.count.Add(1)%e.n == 0 {
		return &http.Response{
			StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: http.NoBody, Request: r, ProtoMajor: 1, ProtoMinor: 1,
		}, nil
	}
	return http.DefaultTransport.RoundTrip(r)
}

// bare removes the headers that a registry need not send.
type bare struct{}

func (bare) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		resp.Header.Del("Docker-Content-Digest")
	}
	return resp, err
}

// request is a change of a channel.
type request struct {
	Channel        string
	Do             catalog.Action // empty: only publish what waits
	Changes        []catalog.Change
	Expires, Until time.Time
	Reason, Out    string
	New, DryRun    bool
	Withdrawn      bool // promote offers what was withdrawn
}

func change(ctx context.Context, p *publish.Publisher, r request) (publish.Result, error) {
	do := publish.Settle
	switch r.Do {
	case catalog.ActionRefresh:
		do = publish.Refresh(r.Expires)
	case catalog.ActionFreeze:
		do = publish.Freeze(r.Until)
	case catalog.ActionAdd, catalog.ActionPromote, catalog.ActionWithdraw:
		do = publish.Ask(ops.Want{Do: r.Do, Changes: r.Changes, Again: r.Withdrawn})
	}
	return p.Change(ctx, r.Channel, do, publish.How{New: r.New, DryRun: r.DryRun, Out: r.Out, Reason: r.Reason})
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

func withdrawn(ctx context.Context, p *publish.Publisher, v publish.Version, w publish.Withdrawal) ([]catalog.Change, error) {
	got, err := drafted(ctx, p, v.Channel, publish.Withdraw(w))
	return got.Changes, err
}

func selected(ctx context.Context, p *publish.Publisher, from, to publish.Version, s publish.Selection) (selection, error) {
	offer, err := p.Offer(ctx, from.Channel)
	if err != nil {
		return selection{}, err
	}
	return drafted(ctx, p, to.Channel, publish.Promote(offer, publish.Promotion{Selection: s}))
}
