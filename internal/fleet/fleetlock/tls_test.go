// SPDX-License-Identifier: Apache-2.0

package fleetlock_test

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/fleet/fleetlock"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

// secure serves over TLS with a certificate and returns the URL.
func secure(t *testing.T, cert, key string, config *tls.Config, h http.HandlerFunc) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	s := httptest.NewUnstartedServer(h)
	s.TLS, s.Config.ErrorLog = config, log.New(io.Discard, "", 0)
	s.TLS.Certificates = []tls.Certificate{pair}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

// roots returns the authorities in a file.
func roots(t *testing.T, ca string) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM([]byte(registrytest.Text(t, ca))))
	return pool
}

func grant(http.ResponseWriter, *http.Request) {}

func TestALockServerSpeaksTLS12(t *testing.T) {
	t.Parallel()
	ca, cert, key := registrytest.Certificate(t)
	url := secure(t, cert, key, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, grant)
	_, err := client(t, url, func(o *fleetlock.Options) { o.CA = ca }).Lock(t.Context())
	require.ErrorContains(t, err, "protocol version")
}

func TestClientCertificate(t *testing.T) {
	t.Parallel()
	ca, cert, key := registrytest.Certificate(t)
	address := secure(t, cert, key, &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots(t, ca)}, grant)
	dir := t.TempDir()
	mine, myKey := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	c := client(t, address, func(o *fleetlock.Options) { o.CA, o.Cert, o.Key = ca, mine, myKey })
	lock := func(want string) {
		t.Helper()
		_, err := c.Lock(t.Context())
		if want == "" {
			require.NoError(t, err)
			return
		}
		require.ErrorContains(t, err, want)
	}
	lock("cert " + mine + ": no such file")
	registrytest.Put(t, dir, "cert.pem", registrytest.Text(t, cert))
	lock("key " + myKey + ": no such file")
	registrytest.Put(t, dir, "key.pem", "no key")
	lock("failed to find any PEM data")
	registrytest.Put(t, dir, "key.pem", registrytest.Text(t, key))
	lock("") // files are read anew
	require.NoError(t, os.Chmod(myKey, 0o666))
	lock("others may write to it")

	_, err := client(t, address, func(o *fleetlock.Options) { o.CA = ca }).Lock(t.Context())
	require.Error(t, err, "no client certificate")
	_, err = client(t, address, func(o *fleetlock.Options) { o.Cert, o.Key = cert, key }).Lock(t.Context())
	require.ErrorContains(t, err, "certificate")
	_, err = client(t, address, func(o *fleetlock.Options) { o.CA = key }).Lock(t.Context())
	require.ErrorContains(t, err, "no certificates")
	system := func() *x509.CertPool { return roots(t, ca) }
	_, err = client(t, address, func(o *fleetlock.Options) { o.Roots, o.Cert, o.Key = system, cert, key }).Lock(t.Context())
	require.NoError(t, err)
}

func TestRequestsUseTheProxy(t *testing.T) {
	t.Parallel()
	asked := ""
	proxy := serve(t, func(_ http.ResponseWriter, r *http.Request) { asked = r.URL.String() })
	to, err := url.Parse(proxy)
	require.NoError(t, err)
	c := client(t, "http://lock.example.com", func(o *fleetlock.Options) { o.Proxy = http.ProxyURL(to) })
	_, err = c.Lock(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "http://lock.example.com/v1/pre-reboot", asked)
}

// A lock server with an invalid certificate gets no request: neither with its own authorities nor with the system's.
func TestTheServersCertificateIsVerified(t *testing.T) {
	t.Parallel()
	edit := func(do func(*x509.Certificate)) [3]string {
		ca, cert, key := registrytest.Certificate(t, do)
		return [3]string{ca, cert, key}
	}
	otherCA, _, _ := registrytest.Certificate(t)
	for title, c := range map[string]struct {
		files [3]string
		ca    string // empty: the authority of the files
		want  string
	}{
		"another authority": {edit(func(*x509.Certificate) {}), otherCA, "unknown authority"},
		"another name": {edit(func(c *x509.Certificate) {
			c.IPAddresses, c.DNSNames = nil, []string{"other.example.com"}
		}), "", "doesn't contain any IP SANs"},
		"expired": {edit(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), "", "expired"},
		"not for servers": {edit(func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}), "", "incompatible key usage"},
	} {
		url := secure(t, c.files[1], c.files[2], &tls.Config{}, func(http.ResponseWriter, *http.Request) {
			assert.Fail(t, "it got the request", title)
		})
		ca := cmp.Or(c.ca, c.files[0])
		for _, o := range []func(*fleetlock.Options){
			func(o *fleetlock.Options) { o.CA = ca },
			func(o *fleetlock.Options) { o.Roots = func() *x509.CertPool { return roots(t, ca) } },
			func(o *fleetlock.Options) { o.CA, o.Cert, o.Key = ca, c.files[1], c.files[2] },
		} {
			_, err := client(t, url, o).Lock(t.Context())
			require.ErrorContains(t, err, c.want, title)
			require.ErrorContains(t, client(t, url, o).Unlock(t.Context()), c.want, title)
		}
	}
}
