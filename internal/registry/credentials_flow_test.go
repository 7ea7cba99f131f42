// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// cloud is a registry and its token server in memory, on the clock of a synctest bubble.
type cloud struct {
	expires int                      // lifetime of its tokens, in seconds
	knows   func(*http.Request) bool // reports whether a token request has a valid login
	given   int
	asked   []string
}

func (c *cloud) wrap(http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp := &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{digestHeader: {testDigest}}, Request: req, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		}
		body := ""
		switch {
		case req.URL.Path == "/auth":
			c.asked = append(c.asked, req.Method)
			if !c.knows(req) {
				resp.StatusCode = http.StatusUnauthorized
				break
			}
			c.given++
			body = fmt.Sprintf(`{"token":"of-cloud-%[1]d","access_token":"of-cloud-%[1]d","expires_in":%[2]d}`, c.given, c.expires)
		case c.given == 0 || req.Header.Get("Authorization") != fmt.Sprintf("Bearer of-cloud-%d", c.given):
			resp.StatusCode = http.StatusUnauthorized
			resp.Header.Set("WWW-Authenticate", `Bearer realm="https://registry.suse.com/auth",service="SUSE"`)
		}
		resp.Body = io.NopCloser(strings.NewReader(body))
		return resp, nil
	})
}

var suse = release.Reference{Repository: "registry.suse.com/app", Tag: "1"}

func TestTokenIsUsedUntilItEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{expires: 300, knows: func(*http.Request) bool { return true }}
		r, _ := newRegistry(t, t.TempDir(), withCredentials, func(o *Options) { o.Wrap = c.wrap })
		poll := func(want int) {
			t.Helper()
			_, err := r.Resolve(t.Context(), suse)
			require.NoError(t, err)
			assert.Equal(t, want, c.given)
		}
		poll(1)
		<-time.After(299 * time.Second)
		poll(1)
		before := r.Counts().Requests
		<-time.After(2 * time.Second)
		poll(2)
		assert.Equal(t, uint64(2), r.Counts().Requests-before, "renewed before it is refused: a token, a HEAD")
	})
}

// A password is posted, sent by GET if the token server does not support that, and not sent if there is an identity
// token.
func TestTokensForLogins(t *testing.T) {
	t.Parallel()
	posted := func(want url.Values) func(*http.Request) bool {
		return func(req *http.Request) bool {
			for key := range want {
				if req.PostFormValue(key) != want.Get(key) {
					return false
				}
			}
			return req.Method == http.MethodPost
		}
	}
	flows := []struct {
		title string
		login hosts.Login
		knows func(*http.Request) bool
		want  []string
	}{
		{"POST", hosts.Login{User: "u", Secret: secret}, posted(url.Values{"username": {"u"}, "password": {secret}}), []string{"POST"}},
		{"GET", hosts.Login{User: "u", Secret: secret}, func(req *http.Request) bool {
			user, password, _ := req.BasicAuth()
			return req.Method == http.MethodGet && user == "u" && password == secret
		}, []string{"POST", "GET"}},
		{"identity token", hosts.Login{Secret: secret}, posted(url.Values{"grant_type": {"refresh_token"}, "refresh_token": {secret}}), []string{"POST"}},
	}
	for _, f := range flows {
		c := &cloud{expires: 300, knows: f.knows}
		r, _ := newRegistry(t, t.TempDir(), func(o *Options) {
			o.Wrap = c.wrap
			o.Credentials = func(string, string) (hosts.Login, error) { return f.login, nil }
		})
		for range 2 {
			_, err := r.Resolve(t.Context(), suse)
			require.NoError(t, err, f.title)
		}
		assert.Equal(t, f.want, c.asked, "%s: the token is used again", f.title)
	}
}

// A node whose registration has ended still gets public images.
func TestRefusedSCCLoginIsOmitted(t *testing.T) {
	t.Parallel()
	anonymous := func(req *http.Request) bool {
		return req.Method == http.MethodGet && req.Header.Get("Authorization") == ""
	}
	logins := []struct {
		login hosts.Login
		works bool
	}{
		{hosts.Login{User: "SCC_1", Secret: secret, Optional: true}, true},
		{hosts.Login{User: "someone", Secret: secret}, false},
	}
	for _, l := range logins {
		c := &cloud{knows: anonymous}
		r, _ := newRegistry(t, t.TempDir(), func(o *Options) {
			o.Wrap = c.wrap
			o.Credentials = func(string, string) (hosts.Login, error) { return l.login, nil }
		})
		_, err := r.Resolve(t.Context(), suse)
		if !l.works {
			require.ErrorContains(t, err, "token server: 401")
			assert.NotContains(t, err.Error(), secret)
			assert.Equal(t, []string{"POST", "GET"}, c.asked, "a login that somebody configured must work")
			continue
		}
		require.NoError(t, err)
		_, err = r.Resolve(t.Context(), suse)
		require.NoError(t, err)
		assert.Equal(t, []string{"POST", "GET", "GET"}, c.asked, "and the token without it is used again")
	}
}

// The error says why there is no login only if a login was required.
func TestProblemsOfCredentialsAreReportedIfNeeded(t *testing.T) {
	t.Parallel()
	problem := errors.New("not JSON with auths")
	broken := func(o *Options) {
		o.Credentials = func(string, string) (hosts.Login, error) { return hosts.Login{}, problem }
	}
	for _, public := range []bool{true, false} {
		c := &cloud{knows: func(*http.Request) bool { return public }}
		r, _ := newRegistry(t, t.TempDir(), broken, func(o *Options) { o.Wrap = c.wrap })
		_, err := r.Resolve(t.Context(), suse)
		if public {
			require.NoError(t, err, "the login was not needed")
			continue
		}
		require.ErrorContains(t, err, "token server: 401")
		require.ErrorContains(t, err, problem.Error())
	}
}

func mustURL(t testing.TB, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	require.NoError(t, err)
	return u
}

// htpasswd is the line for the user u with the secret: bcrypt, cost 5.
const htpasswd = "u:$2y$05$.7xlTCEQhZU6rFLWKxGAfu4gXAc3AnLQRNPqJvA5WGM6eqy7oJHda\n"

// pushTLS pushes an image to a registry with TLS that accepts the Authorization.
func pushTLS(t testing.TB, ca, reference, authorization string, img v1.Image) {
	t.Helper()
	ref, err := name.ParseReference(reference)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	data, err := os.ReadFile(ca)
	require.NoError(t, err)
	require.True(t, pool.AppendCertsFromPEM(data))
	next := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	defer next.CloseIdleConnections()
	transport := roundTripper(func(req *http.Request) (*http.Response, error) {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", authorization)
		return next.RoundTrip(req)
	})
	require.NoError(t, remote.Write(ref, img, remote.WithTransport(transport), remote.WithContext(t.Context())))
}

func TestPasswordsOfARealRegistry(t *testing.T) {
	t.Parallel()
	ca, cert, key := certificate(t)
	root := t.TempDir()
	put(t, root, "htpasswd", htpasswd)
	host := startDistributionWith(t, "auth: {htpasswd: {realm: test, path: "+filepath.Join(root, "htpasswd")+"}}\n", cert, key)
	img := testImage(t, "linux/amd64")
	pushTLS(t, ca, host+"/app:1", "Basic "+encodedAuth("u", secret), img)
	pushTLS(t, ca, host+"/other:1", "Basic "+encodedAuth("u", secret), img)
	put(t, root, "auth.json", `{"auths": {"`+host+`": {"username": "u", "password": "wrong-password"}, "`+host+`/app": {"auth": "`+encodedAuth("u", secret)+`"}}}`)
	logged := new(bytes.Buffer)
	log := slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r, rec := newRegistry(t, certsD(t, host, "server = \"https://"+host+"\"\nca = \""+ca+"\"\n"), func(o *Options) {
		o.Log = log
		o.Credentials = newCredentials(t, hosts.CredentialOptions{Root: root, Getenv: environ("REGISTRY_AUTH_FILE", "/auth.json"), Log: log})
	})
	poll := func(repository string) error {
		_, err := r.Resolve(t.Context(), release.Reference{Repository: host + "/" + repository, Tag: "1"})
		return err
	}
	require.NoError(t, poll("app"), "the longer key")
	require.NoError(t, poll("app"))
	assert.Equal(t, uint64(3), r.Counts().Requests, "one 401 only")
	for range 3 {
		before := rec.authorized()
		var source *release.SourceError
		err := poll("other")
		require.ErrorAs(t, err, &source, "the shorter key")
		assert.Equal(t, http.StatusUnauthorized, source.Status)
		assert.LessOrEqual(t, rec.authorized()-before, 1, "a wrong password is sent once at most")
	}
	pulled, err := img.Digest()
	require.NoError(t, err)
	_, err = r.Locate(t.Context(), host+"/app", digest.Digest(pulled.String()))
	require.NoError(t, err, "pulls have the same logins")

	put(t, root, "auth.json", authJSONOf(host, "u"))
	require.NoError(t, poll("other"), "the file was corrected")
	put(t, root, "auth.json", "{}")
	require.ErrorContains(t, poll("app"), "no basic auth credentials", "and emptied")
	assertKept(t, r, func() { _ = poll("app") })
	assert.False(t, secretIn(logged.String()), logged)
}
