// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// made returns a client as containerd's parser makes it for a host.
func made(config *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DialContext: new(net.Dialer).DialContext}}
}

// authorized returns a host as hosts.Set makes it.
func authorized(t testing.TB, c *Client, base string) docker.RegistryHost {
	t.Helper()
	u := parsed(t, base)
	host := docker.RegistryHost{Client: made(&tls.Config{}), Scheme: u.Scheme, Host: u.Host, Path: "/v2"}
	require.NoError(t, c.UpdateClient(host.Client))
	all := []docker.RegistryHost{host}
	c.Authorize(all)
	return all[0]
}

// Logins that keep changing leave at most maxSessions behind, and the current one keeps working.
func TestLimitOfSessions(t *testing.T) {
	t.Parallel()
	sessions := map[int]int{maxSessions - 1: maxSessions - 1, maxSessions: maxSessions, maxSessions + 1: 1}
	for logins, want := range sessions {
		current := ""
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if _, password, _ := req.BasicAuth(); password != current {
				w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
				w.WriteHeader(http.StatusUnauthorized)
			}
		}))
		t.Cleanup(server.Close)
		pool := x509.NewCertPool()
		pool.AddCert(server.Certificate())
		c := New(Options{Roots: func() *x509.CertPool { return pool }, Credentials: func(string, string) (hosts.Login, error) {
			return hosts.Login{User: "u", Secret: current}, nil
		}})
		t.Cleanup(c.Close)
		host := authorized(t, c, server.URL)
		ask := func() error {
			_, err := c.Ask(t.Context(), host, Question{URL: parsed(t, server.URL), Repository: "app"})
			return err
		}
		for n := range logins {
			current = fmt.Sprintf("password-number-%d", n)
			require.NoError(t, ask())
		}
		assert.Len(t, host.Authorizer.(*authorizer).sessions, want, "%d logins", logins)
		before := c.Counts().Requests
		require.NoError(t, ask())
		assert.Equal(t, uint64(1), c.Counts().Requests-before)
	}
}

// Hosts with the same TLS configuration share connections, others do not.
func TestHostsShareATransport(t *testing.T) {
	t.Parallel()
	c, ca := New(Options{}), x509.NewCertPool()
	for range 2 {
		require.NoError(t, c.UpdateClient(made(&tls.Config{})))
	}
	assert.Len(t, c.shared, 1)
	for range 2 {
		require.NoError(t, c.UpdateClient(made(&tls.Config{InsecureSkipVerify: true})))
		require.NoError(t, c.UpdateClient(made(&tls.Config{RootCAs: ca})))
		require.NoError(t, c.UpdateClient(made(&tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{{1}}}}})))
	}
	assert.Len(t, c.shared, 4)
}

// Every error of a host is shortened.
func TestErrorsOfAHostAreOneLine(t *testing.T) {
	t.Parallel()
	long := errors.New(strings.Repeat("x\n", 1<<10))
	err := quotable(long)
	assert.Equal(t, outside.Line(err.Error(), outside.MaxError), err.Error())
	p := newPace(time.Now, 0)
	for range openAfter {
		p.failed(route{host: "a"}, long)
	}
	assert.LessOrEqual(t, len(p.blocked(route{host: "a"}).Error()), outside.MaxText+200)
}

func TestKnownTokenServers(t *testing.T) {
	t.Parallel()
	realms := []struct {
		registry, realm string
		want            bool
	}{
		{"registry-1.docker.io", "https://auth.docker.io/token", true},
		{"registry-1.docker.io", "https://auth.docker.io:443/token", true},
		{"registry-1.docker.io", "https://auth.docker.io.evil.org/token", false},
		{"registry-1.docker.io", "http://auth.docker.io/token", false},
		{"registry.suse.com", "https://registry.suse.com/auth", true},
		{"registry.suse.com", "https://REGISTRY.suse.com:443/auth", true},
		{"registry.suse.com", "https://scc.suse.com/api/registry/authorize", true},
		{"registry.suse.com", "https://registry.suse.com:8443/auth", false},
		{"registry.suse.com", "https://user@registry.suse.com/auth", false},
		{"registry.gitlab.com", "https://gitlab.com/jwt/auth", true},
		{"registry.gitlab.com", "https://gitlab.com.evil.org/jwt/auth", false},
		{"mirror:5000", "https://auth.docker.io/token", false},
		{"mirror:5000", "https://mirror:5000/token", true},
		{"mirror:5000", "https://mirror/token", false},
		{"own.example.org", "https://auth.example.org/token", true},
		{"own.example.org", "https://example.org/token", false},
		{"own.example.org", "//own.example.org/token", false},
	}
	for _, r := range realms {
		may := mayShow(parsed(t, "https://"+r.registry), map[string]string{"own.example.org": "auth.example.org"})
		assert.Equal(t, r.want, may(parsed(t, r.realm)), "%s %s", r.registry, r.realm)
	}
}

func parsed(t testing.TB, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	require.NoError(t, err)
	return u
}

// TestRealmOnAnotherHostIsNamed checks the error from which doctor derives its remedy.
func TestRealmOnAnotherHostIsNamed(t *testing.T) {
	t.Parallel()
	home := &url.URL{Scheme: "https", Host: "registry.example.com"}
	challenge := &http.Response{
		Header:  http.Header{"Www-Authenticate": {`Bearer realm="https://gitlab.example.com/jwt/auth",service="container_registry"`}},
		Request: &http.Request{URL: home},
	}
	err := (&authorizer{may: mayShow(home, nil)}).withheld(challenge)
	require.ErrorIs(t, err, errForeignHost)
	foreign, is := errors.AsType[*ForeignRealmError](err)
	require.True(t, is, "%v", err)
	assert.Equal(t, ForeignRealmError{Registry: "registry.example.com", Realm: "gitlab.example.com"}, *foreign)
	listed := &authorizer{may: mayShow(home, map[string]string{home.Host: "gitlab.example.com"})}
	require.NoError(t, listed.withheld(challenge))
}

func TestLimitOfForeignTokens(t *testing.T) {
	t.Parallel()
	kept := map[int]int{
		maxForeignTokens - 1: maxForeignTokens - 1, maxForeignTokens: maxForeignTokens, maxForeignTokens + 1: 1,
	}
	for hosts, want := range kept {
		f := newForeignTokens(nil)
		last := foreignToken{}
		for n := range hosts {
			last = foreignToken{fmt.Sprintf("https://%d.example.com", n), "repository:app:pull"}
			f.put(last, "Bearer x")
		}
		assert.Len(t, f.tokens, want, "%d hosts", hosts)
		assert.Equal(t, "Bearer x", f.get(last))
	}
}
