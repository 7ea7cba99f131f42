// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
)

// tokens issues tokens anonymous-1, anonymous-2, ... and makes a fake require the newest.
type tokens struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []*http.Request
	given  int
	status int    // instead of a token
	body   string // instead of a token's body
}

func newTokenServer(t testing.TB, f *fake) *tokens {
	t.Helper()
	s := &tokens{}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	f.answer(func(w http.ResponseWriter, req *http.Request) {
		if !s.valid(req.Header.Get("Authorization")) {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="fake",scope="repository:app:pull"`, s.URL))
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	return s
}

func (s *tokens) valid(authorization string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.given > 0 && authorization == fmt.Sprintf("Bearer anonymous-%d", s.given)
}

func (s *tokens) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, req)
	switch {
	case s.status != 0:
		w.WriteHeader(s.status)
	case s.body != "":
		_, _ = w.Write([]byte(s.body))
	default:
		s.given++
		_, _ = fmt.Fprintf(w, `{"token":"anonymous-%d"}`, s.given)
	}
}

func (s *tokens) set(status, given int, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.body = status, body
	s.given += given
}

func TestAnonymousToken(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.tag("1", f.image(t, "linux", "amd64", nil))
	s := newTokenServer(t, f)
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
	poll := func() error {
		_, err := r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
		return err
	}
	require.NoError(t, poll())
	assert.Equal(t, Counts{Requests: 3, Tokens: 1}, onlyRequests(r.Counts()), "a HEAD, a token, a HEAD")
	assert.Equal(t, "repository:app:pull", s.asked[0].URL.Query().Get("scope"))
	assert.Equal(t, "image-update-agent/1.2.3", s.asked[0].Header.Get("User-Agent"))

	require.NoError(t, poll())
	assert.Equal(t, Counts{Requests: 4, Tokens: 1}, onlyRequests(r.Counts()), "the token is used again")

	s.set(0, 1, "")
	require.NoError(t, poll(), "the host no longer takes the token, and does not say why")
	assert.Equal(t, Counts{Requests: 7, Tokens: 2}, onlyRequests(r.Counts()), "it is renewed once")
}

func TestConcurrentPollsShareOneToken(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.tag("1", f.image(t, "linux", "amd64", nil))
	newTokenServer(t, f)
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
	var polls errgroup.Group
	for range 20 {
		polls.Go(func() error {
			_, err := r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
			return err
		})
	}
	require.NoError(t, polls.Wait())
	assert.Equal(t, uint64(1), r.Counts().Tokens)
}

func onlyRequests(c Counts) Counts { return Counts{Requests: c.Requests, Tokens: c.Tokens} }

func TestTokenServerFails(t *testing.T) {
	t.Parallel()
	failures := []struct {
		title    string
		status   int
		body     string
		wantText string
	}{
		{"500", 500, "", "token server: 500 Internal Server Error"},
		{"404", 404, "", "token server: 404 Not Found"}, // not release.ErrNotFound, because the tag exists
		{"no JSON", 0, "<html>", "token response"},
	}
	for _, failure := range failures {
		t.Run(failure.title, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.tag("1", f.image(t, "linux", "amd64", nil))
			s := newTokenServer(t, f)
			s.set(failure.status, 0, failure.body)
			r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
			poll := func() error {
				_, err := r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
				return err
			}
			err := poll()
			var source *release.SourceError
			require.ErrorAs(t, err, &source)
			require.ErrorContains(t, err, failure.wantText)
			assert.Equal(t, f.host(), source.Host)
			require.NotErrorIs(t, err, release.ErrNotFound)
			s.set(0, 0, "")
			require.NoError(t, poll(), "the failure must not be remembered")
		})
	}
}

// basic makes a fake require the user u with the secret.
func basic(w http.ResponseWriter, req *http.Request) {
	if user, password, ok := req.BasicAuth(); !ok || user != "u" || password != secret {
		w.Header().Set("WWW-Authenticate", `Basic realm="fake"`)
		w.WriteHeader(http.StatusUnauthorized)
	}
}

func withCredentials(o *Options) {
	o.Credentials = func(string, string) (hosts.Login, error) { return hosts.Login{User: "u", Secret: secret}, nil }
}

// A host that accepts no token is not asked forever; containerd does not do that either.
func TestTokensThatAreNeverAccepted(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := newTokenServer(t, f)
	s.set(0, 0, `{"token":"anonymous-and-wrong"}`)
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
	_, err := r.Locate(t.Context(), f.repository(), testDigest)
	require.ErrorContains(t, err, "credentials refused")
	assert.Equal(t, Counts{Requests: 3, Tokens: 1}, onlyRequests(r.Counts()), "a pull: HEAD, token, HEAD")
	_, err = r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
	var source *release.SourceError
	require.ErrorAs(t, err, &source)
	assert.Equal(t, http.StatusUnauthorized, source.Status)
	assert.Equal(t, Counts{Requests: 6, Tokens: 2}, onlyRequests(r.Counts()), "a poll: the same")
}

// A login is only for the host that required it, for every use of the authorizer.
func TestAuthorizerKnowsItsHost(t *testing.T) {
	t.Parallel()
	f := newTLSFake(t)
	f.tag("1", f.image(t, "linux", "amd64", nil))
	f.answer(basic)
	r, _ := newRegistry(t, certsD(t, f.host(), f.tlsHost(t)), withCredentials)
	_, err := r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
	require.NoError(t, err)
	hosts, err := r.hosts.Of(f.host())
	require.NoError(t, err)
	for host, known := range map[string]bool{f.host(): true, "evil.example.org": false, "evil.example.org:" + strings.Split(f.host(), ":")[1]: false} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/v2/", nil)
		require.NoError(t, err)
		require.NoError(t, hosts[0].Authorizer.Authorize(t.Context(), req))
		assert.Equal(t, known, req.Header.Get("Authorization") != "", host)
	}
}

// A host with plain http may require a token, which is then requested without credentials, because its realm may be
// anywhere.
func TestTokensForPlainHTTPAreAnonymous(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.tag("1", f.image(t, "linux", "amd64", nil))
	s := newTokenServer(t, f)
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())), func(o *Options) {
		o.Credentials = func(host, _ string) (hosts.Login, error) {
			assert.Fail(t, "nobody needs a login for "+host)
			return hosts.Login{}, nil
		}
	})
	_, err := r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
	require.NoError(t, err)
	require.Len(t, s.asked, 1)
	assert.Equal(t, http.MethodGet, s.asked[0].Method, "a POST would carry the password")
	assert.Empty(t, s.asked[0].Header.Get("Authorization"))
}

// Neither plain http nor containerd's fallback to it for localhost sends credentials.
func TestFallbackToHTTPCarriesNoCredentials(t *testing.T) {
	t.Parallel()
	for _, isNamed := range []bool{false, true} {
		f, root := newFake(t), t.TempDir()
		f.answer(basic)
		if isNamed {
			addNamespace(t, root, f.host(), plainHTTP(f.host()))
		}
		r, _ := newRegistry(t, root, withCredentials)
		_, err := r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
		require.ErrorContains(t, err, "credentials are not sent over plain http")
		require.ErrorIs(t, err, transport.ErrPlainCredentials, "no file with a login would help")
		require.Len(t, f.log(), 1)
		assert.NotContains(t, f.log()[0], "Basic")
	}
}

// What a registry, or its token server, repeats of the login is in no error.
func TestALoginThatIsRepeatedIsNotSaid(t *testing.T) {
	t.Parallel()
	for name, echo := range map[string]func(*http.Request) string{
		"password": func(req *http.Request) string { _, password, _ := req.BasicAuth(); return password },
		"base64":   func(req *http.Request) string { return strings.TrimPrefix(req.Header.Get("Authorization"), "Basic ") },
	} {
		f := newTLSFake(t)
		f.answer(func(w http.ResponseWriter, req *http.Request) {
			if req.Header.Get("Authorization") == "" {
				basic(w, req)
				return
			}
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = fmt.Fprintf(conn, "HTTP/1.1 %s\r\n\r\n", echo(req))
				_ = conn.Close()
			}
		})
		r, _ := newRegistry(t, certsD(t, f.host(), f.tlsHost(t)), func(o *Options) {
			o.Credentials = func(string, string) (hosts.Login, error) {
				return hosts.Login{User: "u", Secret: "correct-horse"}, nil
			}
		})
		_, err := r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
		require.ErrorContains(t, err, "malformed HTTP", name)
		assert.NotContains(t, err.Error(), "horse", name)
		assert.NotContains(t, err.Error(), "dTpjb3JyZWN0", name)
	}
}
