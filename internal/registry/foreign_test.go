// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// webHost configures one host of a web of registries.
type webHost struct {
	wants       string // empty, "token", "basic", "both", or "new token": another one each time
	realm       string // the host of its token server; empty: itself
	status      int    // instead of content
	to          string // the target of its redirect
	code        int    // of the redirect; 0: 307
	tokenStatus int    // of its token server
	plain       bool   // http
	noDigest    bool   // no Docker-Content-Digest, so that containerd repeats the request with GET
}

const webManifest = `{"schemaVersion":2,"mediaType":"` + ocispec.MediaTypeImageManifest + `","config":{"mediaType":"` +
	ocispec.MediaTypeImageConfig + `","digest":"` + testDigest + `","size":2},"layers":[]}`

// web has registries that redirect to each other: home, a and b, and auth for tokens.
type web struct {
	t       testing.TB
	servers map[string]webHost
	at      map[string]*httptest.Server
	content []byte

	mu    sync.Mutex
	seen  map[string]string // bytes sent to a host
	given int
}

func newWeb(t testing.TB, servers map[string]webHost) *web {
	t.Helper()
	w := &web{t: t, servers: servers, at: map[string]*httptest.Server{}, seen: map[string]string{}, content: []byte(webManifest)}
	for _, name := range []string{"home", "a", "b", "auth"} {
		start := httptest.NewTLSServer
		if servers[name].plain {
			start = httptest.NewServer
		}
		w.at[name] = start(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) { w.serve(name, rw, req) }))
		t.Cleanup(w.at[name].Close)
	}
	return w
}

func (w *web) serve(name string, rw http.ResponseWriter, req *http.Request) {
	dump, err := httputil.DumpRequest(req, true)
	assert.NoError(w.t, err)
	w.mu.Lock()
	w.seen[name] += string(dump) + "\n"
	w.mu.Unlock()
	s := w.servers[name]
	switch {
	case req.URL.Path == "/token":
		w.token(s, rw, req)
	case !w.admits(name, s, rw, req):
	case s.status != 0:
		rw.WriteHeader(s.status)
	case s.to != "" && !strings.HasSuffix(req.URL.Path, "/there"):
		to := w.at[s.to].URL + req.URL.Path
		if s.to == name {
			to += "/there"
		}
		code := s.code
		if code == 0 {
			code = http.StatusTemporaryRedirect
		}
		http.Redirect(rw, req, to, code)
	default:
		rw.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
		if !s.noDigest {
			rw.Header().Set(digestHeader, digest.FromBytes(w.content).String())
		}
		_, _ = rw.Write(w.content)
	}
}

// admits reports whether a request satisfies a host's requirement, and answers it otherwise.
func (w *web) admits(name string, s webHost, rw http.ResponseWriter, req *http.Request) bool {
	sent := req.Header.Get("Authorization")
	w.mu.Lock()
	newest := fmt.Sprintf("Bearer token-of-%s-%d", name, w.given)
	w.mu.Unlock()
	switch s.wants {
	case "":
		return true
	case "basic":
		if user, password, _ := req.BasicAuth(); user == "u" && password == secret {
			return true
		}
	case "new token":
		if sent == newest {
			return true
		}
	default:
		if strings.HasPrefix(sent, "Bearer token-of-"+name+"-") {
			return true
		}
	}
	realm := w.at[name].URL
	if s.realm != "" {
		realm = w.at[s.realm].URL
	}
	if s.wants == "basic" || s.wants == "both" {
		rw.Header().Add("WWW-Authenticate", `Basic realm="x"`)
	}
	if s.wants != "basic" {
		rw.Header().Add("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="%s",scope="repository:app:pull"`, realm, name))
	}
	rw.WriteHeader(http.StatusUnauthorized)
	return false
}

func (w *web) token(s webHost, rw http.ResponseWriter, req *http.Request) {
	w.mu.Lock()
	w.given++
	n := w.given
	w.mu.Unlock()
	if s.tokenStatus != 0 {
		rw.WriteHeader(s.tokenStatus)
		return
	}
	service := req.FormValue("service")
	_, _ = fmt.Fprintf(rw, `{"token":"token-of-%[1]s-%[2]d","access_token":"token-of-%[1]s-%[2]d"}`, service, n)
}

func (w *web) sentTo(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[name]
}

func (w *web) host(name string) string { return w.at[name].Listener.Addr().String() }

// layer returns the content of the web as a layer.
func (w *web) layer() ocispec.Descriptor {
	return ocispec.Descriptor{
		MediaType: ocispec.MediaTypeImageLayerGzip, Digest: digest.FromBytes(w.content), Size: int64(len(w.content)),
	}
}

// containerd returns containerd's options for the web, with a login for home only.
func (w *web) containerd() docker.ResolverOptions {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	w.t.Cleanup(client.CloseIdleConnections)
	scheme, _, _ := strings.Cut(w.at["home"].URL, "://")
	authorizer := docker.NewDockerAuthorizer(docker.WithAuthClient(client), docker.WithAuthCreds(func(host string) (string, string, error) {
		if host != w.host("home") || scheme == "http" {
			return "", "", nil
		}
		return "u", secret, nil
	}))
	return docker.ResolverOptions{Hosts: func(string) ([]docker.RegistryHost, error) {
		return []docker.RegistryHost{{
			Client: client, Authorizer: authorizer, Host: w.host("home"), Scheme: scheme, Path: "/v2",
			Capabilities: docker.HostCapabilityPull | docker.HostCapabilityResolve,
		}}, nil
	}}
}

// ours returns the agent's client for the web.
func (w *web) ours() *guarded {
	file := plainHTTP(w.host("home"))
	if !w.servers["home"].plain {
		file = (&fake{Server: w.at["home"]}).tlsHost(w.t) + "[header]\nx-api-key = \"" + secret + "\"\n"
	}
	var roots *x509.CertPool
	if tls := w.tlsServer(); tls != nil {
		roots = (&fake{Server: tls}).pool()
	}
	r, _ := newRegistry(w.t, certsD(w.t, w.host("home"), file), func(o *Options) {
		o.Roots = func() *x509.CertPool { return roots }
		o.Credentials = func(host, _ string) (hosts.Login, error) {
			assert.Equal(w.t, w.host("home"), host, "nobody else has a login")
			return hosts.Login{User: "u", Secret: secret}, nil
		}
	})
	return r
}

// tlsServer returns a server with TLS; all of them have the same certificate.
func (w *web) tlsServer() *httptest.Server {
	for _, s := range w.at {
		if s.TLS != nil {
			return s
		}
	}
	return nil
}

// question is a request of both clients.
type question struct {
	title      string
	noDigest   bool // containerd and the agent also use GET
	containerd func(context.Context, *web, docker.ResolverOptions) error
	ours       func(context.Context, *web, *guarded) error
}

func readAll(body io.ReadCloser, err error) error {
	if err != nil {
		return err
	}
	_, err = io.ReadAll(body)
	_ = body.Close()
	return err
}

func questions() []question {
	tagOfContainerd := func(ctx context.Context, w *web, o docker.ResolverOptions) error {
		_, _, err := docker.NewResolver(o).Resolve(ctx, w.host("home")+"/app:1")
		return err
	}
	tag := func(ctx context.Context, w *web, r *guarded) error {
		_, err := r.Resolve(ctx, release.Reference{Repository: w.host("home") + "/app", Tag: "1"})
		return err
	}
	return []question{
		{"a tag", false, tagOfContainerd, tag},
		{"a tag without its digest", true, tagOfContainerd, tag},
		{"a layer", false, func(ctx context.Context, w *web, o docker.ResolverOptions) error {
			fetcher, err := docker.NewResolver(o).Fetcher(ctx, w.host("home")+"/app:1")
			if err != nil {
				return err
			}
			return readAll(fetcher.Fetch(ctx, w.layer()))
		}, func(ctx context.Context, w *web, r *guarded) error {
			return readAll(r.Fetch(ctx, w.host("home")+"/app", w.layer()))
		}},
	}
}

type webCase struct {
	title    string
	servers  map[string]webHost
	resolves bool
	stricter string // why the agent does not follow a redirect that containerd follows
	asks     bool   // a plain-http host may be asked
}

func webCases() []webCase {
	token, leadsTo := webHost{wants: "token"}, func(name string) webHost { return webHost{to: name} }
	cases := []webCase{
		{title: "no redirect", servers: map[string]webHost{}, resolves: true},
		{title: "no redirect, a token", servers: map[string]webHost{"home": token}, resolves: true},
		{title: "on the same host", servers: map[string]webHost{"home": leadsTo("home")}, resolves: true},
		{title: "on the same host, a token", servers: map[string]webHost{"home": {wants: "token", to: "home"}}, resolves: true},
		{title: "to one that wants nothing", servers: map[string]webHost{"home": leadsTo("a")}, resolves: true},
		{title: "to one that wants a token", servers: map[string]webHost{"home": leadsTo("a"), "a": token}, resolves: true},
		{title: "both want a token", servers: map[string]webHost{"home": {wants: "token", to: "a"}, "a": token}, resolves: true},
		{title: "a login, and then a token", servers: map[string]webHost{"home": {wants: "basic", to: "a"}, "a": token}, resolves: true},
		{title: "a token of a third host", servers: map[string]webHost{"home": leadsTo("a"), "a": {wants: "token", realm: "auth"}}, resolves: true},
		{title: "a token of home", servers: map[string]webHost{"home": leadsTo("a"), "a": {wants: "token", realm: "home"}}, resolves: true},
		{title: "a login or a token", servers: map[string]webHost{"home": leadsTo("a"), "a": {wants: "both"}}, resolves: true},
		{title: "another token each time", servers: map[string]webHost{"home": leadsTo("a"), "a": {wants: "new token"}}, resolves: true},
		{title: "a login", servers: map[string]webHost{"home": leadsTo("a"), "a": {wants: "basic"}}},
		{
			title: "the same login at both", stricter: "401 from another host", // the ports differ, which net/http ignores
			servers: map[string]webHost{"home": {wants: "basic", to: "a"}, "a": {wants: "basic"}},
		},
		{title: "403", servers: map[string]webHost{"home": leadsTo("a"), "a": {status: http.StatusForbidden}}},
		{title: "403 with a token", servers: map[string]webHost{"home": leadsTo("a"), "a": {wants: "token", status: http.StatusForbidden}}},
		{title: "404 with a token", servers: map[string]webHost{"home": leadsTo("a"), "a": {wants: "token", status: http.StatusNotFound}}},
		{title: "no token is right", servers: map[string]webHost{"home": leadsTo("a"), "a": {wants: "token", status: http.StatusUnauthorized}}},
		{title: "token server: 500", servers: map[string]webHost{"home": leadsTo("a"), "a": {wants: "token", tokenStatus: 500}}},
		{title: "token server: 403", servers: map[string]webHost{"home": leadsTo("a"), "a": {wants: "token", tokenStatus: 403}}},
		{title: "token server: away", servers: map[string]webHost{"home": leadsTo("a"), "a": {wants: "token", realm: "auth"}, "auth": {tokenStatus: 502}}},
		{title: "two hosts", servers: map[string]webHost{"home": leadsTo("a"), "a": leadsTo("b")}, resolves: true},
		{title: "two hosts, the second wants a token", servers: map[string]webHost{"home": leadsTo("a"), "a": leadsTo("b"), "b": token}, resolves: true},
		{title: "two hosts, the first wants a token", servers: map[string]webHost{"home": leadsTo("a"), "a": {wants: "token", to: "b"}}, resolves: true},
		{title: "two hosts, both want a token", servers: map[string]webHost{"home": leadsTo("a"), "a": {wants: "token", to: "b"}, "b": token}, resolves: true},
		{title: "three tokens", servers: map[string]webHost{"home": {wants: "token", to: "a"}, "a": {wants: "token", to: "b"}, "b": token}, resolves: true},
		{title: "in circles", servers: map[string]webHost{"home": leadsTo("a"), "a": leadsTo("home")}},
		{title: "in circles with a token", servers: map[string]webHost{"home": leadsTo("a"), "a": {wants: "token", to: "home"}}},
		{title: "to plain http", servers: map[string]webHost{"home": leadsTo("a"), "a": {plain: true}}, stricter: "redirected from https to http"},
		{title: "to plain http that wants a token", servers: map[string]webHost{"home": leadsTo("a"), "a": {plain: true, wants: "token"}}, stricter: "redirected from https to http"},
		{
			title: "a token over plain http", stricter: "realm with plain http",
			servers: map[string]webHost{"home": leadsTo("a"), "a": {wants: "token", realm: "auth"}, "auth": {plain: true}},
		},
		{
			title: "from plain http to TLS that wants a token over plain http", stricter: "realm with plain http",
			servers: map[string]webHost{"home": {plain: true, to: "a"}, "a": {wants: "token", realm: "auth"}, "auth": {plain: true}},
		},
		{
			title: "plain http everywhere", resolves: true, asks: true,
			servers: map[string]webHost{"home": {plain: true, to: "a"}, "a": {plain: true, wants: "token", realm: "auth"}, "auth": {plain: true}},
		},
		{title: "from plain http to TLS", resolves: true, servers: map[string]webHost{"home": {plain: true, to: "a"}, "a": token}},
	}
	for _, code := range []int{301, 302, 303, 308} {
		cases = append(cases, webCase{
			title: fmt.Sprint(code), servers: map[string]webHost{"home": {to: "a", code: code}, "a": token}, resolves: true,
		})
	}
	return cases
}

// TestForeignTokensAsContainerd sends the same requests to registries that redirect to each other, as lscr.io does to
// ghcr.io, with containerd's resolver and with the agent's client. The agent resolves everything that containerd can
// pull; and no secret of home reaches another host.
func TestForeignTokensAsContainerd(t *testing.T) {
	t.Parallel()
	for _, c := range webCases() {
		for _, q := range questions() {
			t.Run(c.title+"/"+q.title, func(t *testing.T) {
				t.Parallel()
				servers := map[string]webHost{}
				for _, name := range []string{"home", "a", "b", "auth"} {
					s := c.servers[name]
					s.noDigest = q.noDigest
					servers[name] = s
				}
				theirs, w := newWeb(t, servers), newWeb(t, servers)
				errTheirs := q.containerd(t.Context(), theirs, theirs.containerd())
				assert.Equal(t, c.resolves || c.stricter != "", errTheirs == nil, "containerd: %v", errTheirs)
				r := w.ours()
				for range 2 {
					err := q.ours(t.Context(), w, r)
					assert.Equal(t, c.resolves, err == nil, "the agent: %v", err)
					if c.stricter != "" {
						require.ErrorContains(t, err, c.stricter)
					}
				}
				for _, name := range []string{"a", "b", "auth"} {
					sent := w.sentTo(name)
					assert.False(t, secretIn(sent), "%s was sent %s", name, sent)
					assert.NotContains(t, sent, "Bearer token-of-home-", name)
					assert.NotContains(t, sent, "X-Api-Key", name)
					if servers[name].plain && !c.asks {
						assert.Empty(t, sent, name)
					}
				}
			})
		}
	}
}

// Tokens of one host are sent to no other host, and one request needs one token, and one more redirect.
func TestForeignTokenIsForItsHost(t *testing.T) {
	t.Parallel()
	w := newWeb(t, map[string]webHost{"home": {to: "a"}, "a": {wants: "token", to: "b"}, "b": {wants: "token"}})
	r := w.ours()
	poll := func() {
		_, err := r.Resolve(t.Context(), release.Reference{Repository: w.host("home") + "/app", Tag: "1"})
		require.NoError(t, err)
	}
	poll()
	before := r.Counts()
	assert.Equal(t, uint64(2), before.Tokens)
	poll()
	assert.Equal(t, before.Tokens, r.Counts().Tokens, "the tokens are used again")
	assert.Equal(t, uint64(3), r.Counts().Requests-before.Requests, "one for each host")
	assert.NotContains(t, w.sentTo("home"), "Bearer")
	assert.NotContains(t, w.sentTo("a"), "Bearer token-of-b-")
	assert.NotContains(t, w.sentTo("b"), "Bearer token-of-a-")
}

func TestConcurrentQuestionsShareOneForeignToken(t *testing.T) {
	t.Parallel()
	w := newWeb(t, map[string]webHost{"home": {to: "a"}, "a": {wants: "token", realm: "home"}})
	r := w.ours()
	var polls errgroup.Group
	for range 20 {
		polls.Go(func() error {
			_, err := r.Resolve(t.Context(), release.Reference{Repository: w.host("home") + "/app", Tag: "1"})
			return err
		})
	}
	require.NoError(t, polls.Wait())
	assert.Equal(t, uint64(1), r.Counts().Tokens)
}

// The pages of a tag list are redirected; a link is relative to the redirect's target.
func TestTagsBehindAForeignToken(t *testing.T) {
	t.Parallel()
	home, foreign := newTLSFake(t), newTLSFake(t)
	home.answer(func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, foreign.URL+"/v2/inner"+strings.TrimPrefix(req.URL.RequestURI(), "/v2"), http.StatusTemporaryRedirect)
	})
	foreign.answer(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.URL.Path == "/token":
			_, _ = fmt.Fprint(w, `{"token":"anonymous-one"}`)
		case req.Header.Get("Authorization") != "Bearer anonymous-one":
			challenge(w, `Bearer realm="`+foreign.URL+`/token",service="x",scope="repository:inner/app:pull"`)
		case req.URL.Query().Get("last") == "":
			w.Header().Set("Link", `</v2/inner/app/tags/list?last=1.0&n=1>; rel="next"`)
			_, _ = fmt.Fprint(w, `{"name":"inner/app","tags":["1.0"]}`)
		default:
			_, _ = fmt.Fprint(w, `{"name":"inner/app","tags":["1.1"]}`)
		}
	})
	r, _ := newRegistry(t, certsD(t, home.host(), home.tlsHost(t)))
	list, err := r.Tags(t.Context(), home.repository())
	require.NoError(t, err)
	assert.Equal(t, []string{"1.0", "1.1"}, list)
	assert.Equal(t, uint64(1), r.Counts().Tokens)
}
