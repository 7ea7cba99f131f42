// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
)

// guarded is a registry with its guard.
type guarded struct {
	*Registry
	guard *registrytest.Guard
}

func (g *guarded) Resolve(ctx context.Context, ref release.Reference) (release.Resolved, error) {
	got, err := g.Registry.Resolve(ctx, ref)
	g.guard.Answered(got, err)
	return got, err
}

func (g *guarded) Tags(ctx context.Context, repository string) ([]string, error) {
	got, err := g.Registry.Tags(ctx, repository)
	g.guard.Answered(len(got), err)
	return got, err
}

func (g *guarded) Describe(ctx context.Context, repository string, d digest.Digest) (release.Build, error) {
	got, err := g.Registry.Describe(ctx, repository, d)
	g.guard.Answered(got, err)
	return got, err
}

func (g *guarded) Locate(ctx context.Context, repository string, d digest.Digest) (ocispec.Descriptor, error) {
	got, err := g.Registry.Locate(ctx, repository, d)
	g.guard.Answered(got, err)
	return got, err
}

func (g *guarded) Fetch(ctx context.Context, repository string, desc ocispec.Descriptor) (io.ReadCloser, error) {
	body, err := g.Registry.Fetch(ctx, repository, desc)
	g.guard.Answered(nil, err)
	return pulled{body, g.guard}, err
}

type pulled struct {
	io.ReadCloser
	guard *registrytest.Guard
}

func (p pulled) Seek(offset int64, whence int) (int64, error) {
	return p.ReadCloser.(io.Seeker).Seek(offset, whence)
}

func (p pulled) Read(data []byte) (int, error) {
	n, err := p.ReadCloser.Read(data)
	p.guard.Answered(nil, err)
	return n, err
}

// newCredentials returns logins with a guard.
func newCredentials(t testing.TB, o hosts.CredentialOptions) func(host, repository string) (hosts.Login, error) {
	t.Helper()
	g := registrytest.NewGuard(t, o.Log)
	o.Log = g.Log
	c := hosts.NewCredentials(o)
	return func(host, repository string) (hosts.Login, error) {
		login, err := c.For(host, repository)
		g.Learn("login", login.Secret)
		g.Answered(nil, err)
		return login, err
	}
}

// newRegistry returns a registry for the test's node with the hosts of a certs.d; adjust may change the options.
func newRegistry(t testing.TB, certsDir string, adjust ...func(*Options)) (*guarded, *recorder) {
	t.Helper()
	rec := &recorder{}
	o := Options{Options: transport.Options{Version: "1.2.3", Wrap: rec.wrap}, CertsDirs: []string{certsDir}, Platform: node}
	for _, a := range adjust {
		a(&o)
	}
	g := registrytest.NewGuard(t, o.Log)
	o.Log, o.Wrap = g.Log, g.Around(o.Wrap)
	if proxy := o.Proxy; proxy != nil {
		o.Proxy = func(req *http.Request) (*url.URL, error) {
			u, err := proxy(req)
			if u != nil {
				g.LearnQuery("proxy", u)
			}
			return u, err
		}
	}
	r := New(o)
	if _, is := t.(*testing.T); is {
		r.hosts.CheckEvery = 0 // tests change files and ask at once; benchmarks are as in production
	}
	t.Cleanup(r.Close)
	return &guarded{r, g}, rec
}

// No test creates the tested objects without its guard.
func TestEveryTestHasItsGuard(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	require.Greater(t, len(files), 10)
	around := regexp.MustCompile(`\bNew\(Options|\bNewCredentials\(`)
	for _, file := range files {
		if slices.Contains([]string{"secrets_test.go", "bench_test.go", "memory_test.go"}, file) {
			continue
		}
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.False(t, around.Match(data), "%s: want newRegistry or newCredentials", file)
	}
}
