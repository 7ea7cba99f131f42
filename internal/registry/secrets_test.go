// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
)

// What is secret in the tests. Whatever else a registry is shown, is learnt from
// what goes over the wire.
const (
	secret      = "s3cr3t-of-the-test"
	secretToken = "t0k3n-of-the-test"
)

// guard reads along in a test: what went over the wire as a secret may be in no
// log line, no error and no answer. Each test has one, as newRegistry and
// newCredentials make it; it speaks at the end of the test.
type guard struct {
	mu      sync.Mutex
	secrets map[string]string // with the place where it was seen
	said    bytes.Buffer
	log     *slog.Logger
}

func newGuard(t testing.TB, log *slog.Logger) *guard {
	t.Helper()
	g := &guard{secrets: map[string]string{}}
	handler := slog.Handler(slog.NewTextHandler(writer(g.hear), &slog.HandlerOptions{Level: slog.LevelDebug}))
	if log != nil {
		handler = slog.NewMultiHandler(handler, log.Handler())
	}
	g.log = slog.New(handler)
	g.learn("test", secret)
	g.learn("test", secretToken)
	g.learn("test", encodedAuth("u", secret))
	t.Cleanup(func() {
		for _, problem := range g.problems() {
			t.Error(problem)
		}
	})
	return g
}

type writer func(text string)

func (w writer) Write(p []byte) (int, error) {
	w(string(p))
	return len(p), nil
}

// hear takes note of what a person could read.
func (g *guard) hear(text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.said.WriteString(text + "\n")
}

// answered takes note of an answer and its error.
func (g *guard) answered(value any, err error) {
	g.hear(fmt.Sprintf("%+v", value))
	if err != nil {
		g.hear(fmt.Sprintf("%v\n%q", err, err.Error()))
	}
}

func (g *guard) learn(place, text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if text != "" && !isDigits(text) { // a port is one where a host poses as a user
		g.secrets[text] = place
	}
}

// problems are the secrets that were said, in the forms in which they travel,
// and those that nobody could find in a text.
func (g *guard) problems() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var problems []string
	said := g.said.String()
	for text, place := range g.secrets {
		if len(text) < 8 {
			problems = append(problems, fmt.Sprintf("%s: %q is too short to be looked for", place, text))
			continue
		}
		for _, form := range []string{
			text, url.QueryEscape(text), url.PathEscape(text), base64.StdEncoding.EncodeToString([]byte(text)),
		} {
			if strings.Contains(said, form) {
				problems = append(problems, fmt.Sprintf("%s: %q was said: %s", place, form, said))
				break
			}
		}
	}
	return problems
}

// open are the headers and the parts of a query that anybody may read.
var (
	openHeaders = []string{"Accept", "Accept-Encoding", "Content-Length", "Content-Type", "Range", "User-Agent"}
	openQuery   = []string{"client_id", "last", "n", "ns", "scope", "service"}
)

func (g *guard) learnQuery(place string, u *url.URL) {
	for key, values := range u.Query() {
		for _, value := range values {
			if !slices.Contains(openQuery, key) {
				g.learn(place+": query "+key, value)
			}
		}
	}
	if password, ok := u.User.Password(); ok {
		g.learn(place+": user", password)
	}
}

func (g *guard) learnRequest(req *http.Request) {
	g.learnQuery("request", req.URL)
	for key, values := range req.Header {
		for _, value := range values {
			switch {
			case key == "Referer":
				if u, err := url.Parse(value); err == nil {
					g.learnQuery("referer", u)
				}
			case key == "Authorization":
				_, credentials, _ := strings.Cut(value, " ")
				g.learn(key, credentials)
				if _, password, ok := req.BasicAuth(); ok {
					g.learn(key, password)
				}
			case !slices.Contains(openHeaders, key):
				g.learn("header "+key, value)
			}
		}
	}
	if req.GetBody == nil {
		return
	}
	if body, err := req.GetBody(); err == nil {
		data, _ := io.ReadAll(body)
		form, _ := url.ParseQuery(string(data))
		g.learn("password", form.Get("password"))
		g.learn("identity token", form.Get("refresh_token"))
	}
}

// around is a Wrap around another.
func (g *guard) around(wrap func(http.RoundTripper) http.RoundTripper) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		next = wrap(next)
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			g.learnRequest(req)
			resp, err := next.RoundTrip(req)
			if err == nil {
				_, query, _ := strings.Cut(resp.Header.Get("Location"), "?")
				g.learnQuery("location", &url.URL{RawQuery: query})
			}
			return resp, err
		})
	}
}

// guarded is a registry with its guard.
type guarded struct {
	*Registry
	guard *guard
}

func (g *guarded) Resolve(ctx context.Context, ref agent.Reference) (agent.Resolved, error) {
	got, err := g.Registry.Resolve(ctx, ref)
	g.guard.answered(got, err)
	return got, err
}

func (g *guarded) Tags(ctx context.Context, repository string) ([]string, error) {
	got, err := g.Registry.Tags(ctx, repository)
	g.guard.answered(len(got), err)
	return got, err
}

func (g *guarded) Describe(ctx context.Context, repository string, d digest.Digest) (agent.Build, error) {
	got, err := g.Registry.Describe(ctx, repository, d)
	g.guard.answered(got, err)
	return got, err
}

func (g *guarded) Resolver() remotes.Resolver { return pulls{g.Registry.Resolver(), g.guard} }

// pulls are containerd's, guarded as well.
type pulls struct {
	remotes.Resolver
	guard *guard
}

func (p pulls) Resolve(ctx context.Context, ref string) (string, ocispec.Descriptor, error) {
	name, desc, err := p.Resolver.Resolve(ctx, ref)
	p.guard.answered(name, err)
	return name, desc, err
}

func (p pulls) Fetcher(ctx context.Context, ref string) (remotes.Fetcher, error) {
	fetcher, err := p.Resolver.Fetcher(ctx, ref)
	p.guard.answered(nil, err)
	return remotes.FetcherFunc(func(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
		body, err := fetcher.Fetch(ctx, desc)
		p.guard.answered(nil, err)
		return pulled{body, p.guard}, err
	}), err
}

type pulled struct {
	io.ReadCloser
	guard *guard
}

func (p pulled) Read(data []byte) (int, error) {
	n, err := p.ReadCloser.Read(data)
	p.guard.answered(nil, err)
	return n, err
}

// guardedCredentials are logins with their guard.
type guardedCredentials struct {
	*Credentials
	guard *guard
}

func newCredentials(t testing.TB, o CredentialOptions) guardedCredentials {
	t.Helper()
	g := newGuard(t, o.Log)
	o.Log = g.log
	return guardedCredentials{NewCredentials(o), g}
}

func (c guardedCredentials) For(host, repository string) (Login, error) {
	login, err := c.Credentials.For(host, repository)
	c.guard.learn("login", login.Secret)
	if err != nil {
		c.guard.answered(nil, err)
	}
	return login, err
}

// newRegistry makes a registry for the test's node that asks the hosts of a
// certs.d; adjust may change the options.
func newRegistry(t testing.TB, certsDir string, adjust ...func(*Options)) (*guarded, *recorder) {
	t.Helper()
	rec := &recorder{}
	o := Options{CertsDirs: []string{certsDir}, Version: "1.2.3", Platform: node, Wrap: rec.wrap}
	for _, a := range adjust {
		a(&o)
	}
	g := newGuard(t, o.Log)
	o.Log, o.Wrap = g.log, g.around(o.Wrap)
	if proxy := o.Proxy; proxy != nil {
		o.Proxy = func(req *http.Request) (*url.URL, error) {
			u, err := proxy(req)
			if u != nil {
				g.learnQuery("proxy", u)
			}
			return u, err
		}
	}
	r := New(o)
	if _, is := t.(*testing.T); is {
		r.hosts.look = 0 // tests change files and ask at once; benchmarks are as in life
	}
	t.Cleanup(r.Close)
	return &guarded{r, g}, rec
}

// A guard that hears nothing guards nothing.
func TestGuard(t *testing.T) {
	t.Parallel()
	leaks := []struct {
		title string
		say   func(*guard)
		want  string
	}{
		{"nothing", func(*guard) {}, ""},
		{"log", func(g *guard) { g.log.Info("x", "y", secret) }, "was said"},
		{"debug log", func(g *guard) { g.log.Debug("x", "y", secretToken) }, "was said"},
		{"error", func(g *guard) {
			g.answered(nil, &agent.SourceError{Err: fmt.Errorf("at %s", encodedAuth("u", secret))})
		}, "was said"},
		{"answer", func(g *guard) { g.answered(agent.Resolved{Host: secret}, nil) }, "was said"},
		{"header", func(g *guard) {
			g.learnRequest(&http.Request{URL: &url.URL{}, Header: http.Header{"X-Key": {"value of key"}}})
			g.hear("a value+of+key there")
		}, "header X-Key"},
		{"short", func(g *guard) { g.learn("here", "short") }, "too short"},
	}
	for _, l := range leaks {
		g := newGuard(&silent{TB: t}, nil)
		l.say(g)
		if l.want == "" {
			assert.Empty(t, g.problems())
			continue
		}
		require.Len(t, g.problems(), 1, l.title)
		assert.Contains(t, g.problems()[0], l.want)
	}
}

// silent is a test that ends without its guard.
type silent struct{ testing.TB }

func (*silent) Cleanup(func()) {}

// No test makes what it tests around its guard.
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
