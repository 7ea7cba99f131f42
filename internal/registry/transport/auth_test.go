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
