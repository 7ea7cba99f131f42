// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
)

// ownTLS is a fake with a certificate of its own authority, which also issues client certificates.
type ownTLS struct {
	*fake
	ca, cert, key string // files
}

func newOwnTLS(t *testing.T, adjust func(*ownTLS), edit ...func(*x509.Certificate)) *ownTLS {
	t.Helper()
	f := &ownTLS{fake: &fake{content: map[string]served{}}}
	f.ca, f.cert, f.key = certificate(t, edit...)
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	require.NoError(t, err)
	f.Server = httptest.NewUnstartedServer(f.fake)
	f.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	f.Config.ErrorLog = log.New(io.Discard, "", 0)
	adjust(f)
	f.StartTLS()
	t.Cleanup(f.Close)
	f.tag("1", f.image(t, "linux", "amd64", nil))
	return f
}

// dials connects every name to the fake.
func (f *ownTLS) dials(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, f.host())
}

const ownName = "reg.example.com:5000"

// Client certificates in all forms of hosts.toml and of Docker's directories, with a server that requires one.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	clientCA, clientCert, clientKey := certificate(t)
	_, otherCert, otherKey := certificate(t)
	certificatePEM, keyPEM := text(t, clientCert), text(t, clientKey)
	both := certificatePEM + keyPEM
	toml := func(client string) string {
		return "server = \"https://" + ownName + "\"\nca = \"ca.pem\"\n" + client + "\n"
	}
	pair := toml(`client = [["c.crt", "c.pem"]]`)
	forms := []struct {
		title string
		files map[string]string
		want  string // error
	}{
		{"a pair", map[string]string{"hosts.toml": pair, "c.crt": certificatePEM, "c.pem": keyPEM}, ""},
		{"one file", map[string]string{"hosts.toml": toml(`client = "both.pem"`), "both.pem": both}, ""},
		{"a list of files", map[string]string{"hosts.toml": toml(`client = ["both.pem"]`), "both.pem": both}, ""},
		{"two pairs", map[string]string{
			"hosts.toml": toml(`client = [["c.crt", "c.pem"], ["o.crt", "o.pem"]]`),
			"c.crt":      certificatePEM, "c.pem": keyPEM, "o.crt": text(t, otherCert), "o.pem": text(t, otherKey),
		}, ""},
		{"absolute", map[string]string{"hosts.toml": toml(fmt.Sprintf("client = [[%q, %q]]", clientCert, clientKey))}, ""},
		{"none", map[string]string{"hosts.toml": toml("")}, "certificate required"},
		{"of another authority", map[string]string{
			"hosts.toml": pair, "c.crt": text(t, otherCert), "c.pem": text(t, otherKey),
		}, "unknown certificate authority"},
		{"without its key", map[string]string{"hosts.toml": toml(`client = "c.crt"`), "c.crt": certificatePEM}, "found a certificate rather than a key"},
		{"with another key", map[string]string{"hosts.toml": pair, "c.crt": certificatePEM, "c.pem": text(t, otherKey)}, "private key does not match"},
		{"not there", map[string]string{"hosts.toml": pair}, "c.crt"},
		{"Docker's directory", map[string]string{"c.cert": certificatePEM, "c.key": keyPEM}, ""},
		{"Docker's directory, one file", map[string]string{"c.cert": both}, ""},
		{"Docker's directory, empty hosts.toml", map[string]string{"hosts.toml": "", "c.cert": certificatePEM, "c.key": keyPEM}, ""},
		{"Docker's directory, no client", map[string]string{}, "certificate required"},
	}
	for _, form := range forms {
		t.Run(form.title, func(t *testing.T) {
			t.Parallel()
			pool := x509.NewCertPool()
			require.True(t, pool.AppendCertsFromPEM([]byte(text(t, clientCA))))
			f := newOwnTLS(t, func(f *ownTLS) { f.TLS.ClientAuth, f.TLS.ClientCAs = tls.RequireAndVerifyClientCert, pool })
			root := t.TempDir()
			for name, content := range form.files {
				put(t, root, filepath.Join(ownName, name), content)
			}
			put(t, root, filepath.Join(ownName, "ca.pem"), text(t, f.ca))
			if _, toml := form.files["hosts.toml"]; !toml || form.files["hosts.toml"] == "" {
				put(t, root, filepath.Join(ownName, "ca.crt"), text(t, f.ca))
			}
			r, _ := newRegistry(t, root)
			r.client.Dial = f.dials
			got, err := r.Resolve(t.Context(), release.Reference{Repository: ownName + "/app", Tag: "1"})
			if form.want != "" {
				require.ErrorContains(t, err, form.want)
				assert.Empty(t, f.log())
				return
			}
			require.NoError(t, err)
			assert.Equal(t, release.Resolved{Digest: got.Digest, Host: ownName}, got, "upstream, and secure")
			require.Len(t, f.asked, 1)
			want, err := tls.X509KeyPair([]byte(certificatePEM), []byte(keyPEM))
			require.NoError(t, err)
			assert.Equal(t, want.Certificate[0], f.asked[0].TLS.PeerCertificates[0].Raw)
		})
	}
}

// The authority of a host in all forms; it is read again when its file changes.
func TestAuthorityOfAHost(t *testing.T) {
	t.Parallel()
	other, _, _ := certificate(t)
	const unknown = "unknown authority"
	forms := []struct {
		title string
		files func(ca string) map[string]string
		want  string // error
	}{
		{"a string", func(ca string) map[string]string {
			return map[string]string{"hosts.toml": `ca = "own.pem"`, "own.pem": ca}
		}, ""},
		{"a list", func(ca string) map[string]string {
			return map[string]string{"hosts.toml": `ca = ["other.pem", "own.pem"]`, "other.pem": text(t, other), "own.pem": ca}
		}, ""},
		{"a bundle", func(ca string) map[string]string {
			return map[string]string{"hosts.toml": `ca = "own.pem"`, "own.pem": text(t, other) + ca}
		}, ""},
		{"for a mirror only", func(ca string) map[string]string {
			return map[string]string{"hosts.toml": "[host.\"https://m.example.com\"]\nca = \"own.pem\"\n", "own.pem": ca}
		}, ""},
		{"another", func(string) map[string]string {
			return map[string]string{"hosts.toml": `ca = "own.pem"`, "own.pem": text(t, other)}
		}, unknown},
		{"none", func(string) map[string]string {
			return map[string]string{"hosts.toml": `server = "https://` + ownName + `"`}
		}, unknown},
		{"Docker's directory", func(ca string) map[string]string { return map[string]string{"a.crt": text(t, other), "b.crt": ca} }, ""},
		{"Docker's directory, another ending", func(ca string) map[string]string { return map[string]string{"b.pem": ca} }, unknown},
		{"no certificate", func(string) map[string]string {
			return map[string]string{"hosts.toml": `ca = "own.pem"`, "own.pem": "-----BEGIN"}
		}, "own.pem: no certificates"},
	}
	for _, form := range forms {
		t.Run(form.title, func(t *testing.T) {
			t.Parallel()
			f := newOwnTLS(t, func(*ownTLS) {})
			root := t.TempDir()
			for name, content := range form.files(text(t, f.ca)) {
				put(t, root, filepath.Join(ownName, name), content)
			}
			r, _ := newRegistry(t, root)
			r.client.Dial = f.dials
			got, err := r.Resolve(t.Context(), release.Reference{Repository: ownName + "/app", Tag: "1"})
			if form.want != "" {
				require.ErrorContains(t, err, form.want)
				return
			}
			require.NoError(t, err)
			assert.False(t, got.Insecure)
			assert.Equal(t, form.title == "for a mirror only", got.Mirror)
		})
	}
}

// After some failures a host is not asked for the next images: the reason, and with it the remedy, stays the same.
func TestTheCertificateIsTheReasonForEveryImage(t *testing.T) {
	t.Parallel()
	f := newOwnTLS(t, func(*ownTLS) {})
	r, _ := newRegistry(t, certsD(t, ownName, "server = \"https://"+ownName+"\"\n"))
	r.client.Dial = f.dials
	for n := range 5 {
		_, err := r.Resolve(t.Context(), release.Reference{Repository: fmt.Sprintf("%s/app%d", ownName, n), Tag: "1"})
		failed, is := errors.AsType[*release.SourceError](err)
		require.True(t, is)
		assert.Equal(t, n >= 3, failed.Unasked)
		_, is = errors.AsType[x509.UnknownAuthorityError](err)
		assert.True(t, is, "image %d: %v", n, err)
	}
}

func TestAuthorityOfAHostIsReadAgain(t *testing.T) {
	t.Parallel()
	other, _, _ := certificate(t)
	f := newOwnTLS(t, func(*ownTLS) {})
	root := certsD(t, ownName, "ca = \"own.pem\"\n")
	r, _ := newRegistry(t, root)
	r.client.Dial = f.dials
	file := filepath.Join(ownName, "own.pem")
	for _, step := range []struct{ ca, want string }{
		{text(t, other), "unknown authority"},
		{text(t, other) + text(t, f.ca), ""},
		{text(t, other) + "\n\n", "unknown authority"},
	} {
		put(t, root, file, step.ca)
		_, err := r.Resolve(t.Context(), release.Reference{Repository: ownName + "/app", Tag: "1"})
		if step.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, step.want)
		}
	}
	require.NoError(t, os.Remove(filepath.Join(root, file)))
	_, err := r.Resolve(t.Context(), release.Reference{Repository: ownName + "/app", Tag: "1"})
	require.ErrorContains(t, err, "own.pem")
}

// An invalid certificate is rejected, unless skip_verify is set; then the answer is insecure. Old TLS is always
// rejected.
func TestCertificatesThatAreWrong(t *testing.T) {
	t.Parallel()
	edits := []struct {
		title      string
		edit       func(*x509.Certificate)
		min, max   uint16
		want, skip string // errors, without and with skip_verify
	}{
		{title: "good"},
		{title: "expired", edit: func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, want: "expired or is not yet valid"},
		{title: "not yet", edit: func(c *x509.Certificate) { c.NotBefore = time.Now().Add(30 * time.Minute) }, want: "expired or is not yet valid"},
		{title: "for another host", edit: func(c *x509.Certificate) { c.DNSNames = []string{"reg.example.org"} }, want: "not reg.example.com"},
		{title: "for an address only", edit: func(c *x509.Certificate) { c.DNSNames = nil }, want: "reg.example.com"},
		{title: "for clients only", edit: func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }, want: "incompatible key usage"},
		{title: "TLS 1.2", min: tls.VersionTLS12, max: tls.VersionTLS12},
		{title: "TLS 1.3", min: tls.VersionTLS13, max: tls.VersionTLS13},
		{title: "TLS 1.1", min: tls.VersionTLS10, max: tls.VersionTLS11, want: "protocol version", skip: "protocol version"},
	}
	for _, e := range edits {
		for _, skip := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, skip_verify %v", e.title, skip), func(t *testing.T) {
				t.Parallel()
				var edit []func(*x509.Certificate)
				if e.edit != nil {
					edit = append(edit, e.edit)
				}
				f := newOwnTLS(t, func(f *ownTLS) {
					if e.max != 0 {
						f.TLS.MinVersion, f.TLS.MaxVersion = e.min, e.max
					}
				}, edit...)
				r, _ := newRegistry(t, certsD(t, ownName, fmt.Sprintf("ca = %q\nskip_verify = %v\n", f.ca, skip)))
				r.client.Dial = f.dials
				got, err := r.Resolve(t.Context(), release.Reference{Repository: ownName + "/app", Tag: "1"})
				want := e.want
				if skip {
					want = e.skip
				}
				if want != "" {
					require.ErrorContains(t, err, want)
					var source *release.SourceError
					require.ErrorAs(t, err, &source)
					assert.Zero(t, source.Status)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, skip, got.Insecure)
			})
		}
	}
}

// A host that offers HTTP/2 is asked over HTTP/1.1, as containerd does, on one connection.
func TestHostWithHTTP2(t *testing.T) {
	t.Parallel()
	f := newOwnTLS(t, func(f *ownTLS) { f.EnableHTTP2 = true })
	r, _ := newRegistry(t, certsD(t, ownName, "ca = \""+f.ca+"\"\n"))
	r.client.Dial = f.dials
	assertKept(t, r, func() {
		_, err := r.Resolve(t.Context(), release.Reference{Repository: ownName + "/app", Tag: "1"})
		assert.NoError(t, err)
	})
	assert.Equal(t, "HTTP/1.1", f.asked[0].Proto)
}

// An http host with TLS settings is first asked over TLS, as in containerd; the answer shows the result, and no
// password is sent over plain http.
func TestHTTPHostWithTLSSettings(t *testing.T) {
	t.Parallel()
	plain, secure := newFake(t), newOwnTLS(t, func(*ownTLS) {})
	plain.tag("1", plain.image(t, "linux", "amd64", nil))
	for _, h := range []struct {
		fake     *fake
		dial     transport.DialFunc
		insecure bool
	}{
		{plain, func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, plain.host())
		}, true},
		{secure.fake, secure.dials, false},
	} {
		r, _ := newRegistry(t, certsD(t, ownName, plainHTTP(ownName)+"ca = \""+secure.ca+"\"\n"), withCredentials)
		r.client.Dial = h.dial
		poll := func() (release.Resolved, error) {
			return r.Resolve(t.Context(), release.Reference{Repository: ownName + "/app", Tag: "1"})
		}
		got, err := poll()
		require.NoError(t, err)
		assert.Equal(t, h.insecure, got.Insecure)
		h.fake.answer(basic)
		_, err = poll()
		if !h.insecure {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "credentials are not sent over plain http")
		assert.NotContains(t, strings.Join(h.fake.log(), "\n"), "Basic")
		assert.Equal(t, http.MethodHead, h.fake.asked[0].Method)
	}
}

const bundle = "etc/ssl/ca-bundle.pem"

// The next poll uses the result of an admin's `update-ca-certificates`, in both directions, and an empty bundle changes
// nothing.
func TestAuthoritiesAreReadAgain(t *testing.T) {
	t.Parallel()
	ca, cert, key := certificate(t)
	other, _, _ := certificate(t)
	host := startDistribution(t, cert, key)
	root := t.TempDir()
	logged := new(bytes.Buffer)
	trust := hosts.NewTrust(root, environ(), slog.New(slog.NewTextHandler(logged, nil)))
	r, _ := newRegistry(t, certsD(t, host, "server = \"https://"+host+"\"\n"), func(o *Options) { o.Roots = trust.Roots })
	poll := func() error {
		_, err := r.Resolve(t.Context(), release.Reference{Repository: host + "/app", Tag: "1"})
		return err
	}
	trusted := func(err error) bool { return strings.Contains(err.Error(), "404") }

	require.ErrorContains(t, poll(), "unknown authority", "no bundle at all")
	put(t, root, bundle, text(t, other))
	require.ErrorContains(t, poll(), "unknown authority")
	put(t, root, bundle, text(t, other)+text(t, ca))
	require.True(t, trusted(poll()), "added in place")
	assertKept(t, r, func() { assert.True(t, trusted(poll()), "unchanged") })

	put(t, root, bundle, "-----BEGIN CERTIFICATE-----\nMIIB")
	require.True(t, trusted(poll()), "torn: the last that was whole")
	require.NoError(t, os.Remove(filepath.Join(root, bundle)))
	require.True(t, trusted(poll()), "away")
	assert.Equal(t, 1, strings.Count(logged.String(), "cannot use certificate authorities"), logged)

	put(t, root, "var/lib/ca-certificates/new", text(t, other))
	require.NoError(t, os.Rename(filepath.Join(root, "var/lib/ca-certificates/new"), filepath.Join(root, "var/lib/ca-certificates/ca-bundle.pem")))
	require.ErrorContains(t, poll(), "unknown authority", "taken away: a kept connection does not count")
	require.NoError(t, os.Symlink("../../var/lib/ca-certificates/two.pem", filepath.Join(root, bundle)))
	put(t, root, "var/lib/ca-certificates/two.pem", text(t, ca))
	require.True(t, trusted(poll()), "behind a link")
}

// A ca of hosts.toml applies to its host, and is not added to the system's.
func TestAuthorityOfAHostStaysWithIt(t *testing.T) {
	t.Parallel()
	a, b := newTLSFake(t), newFake(t)
	ca, cert, key := certificate(t)
	host := startDistribution(t, cert, key)
	root := t.TempDir()
	put(t, root, bundle, text(t, a.ca(t)))
	trust := hosts.NewTrust(root, environ(), nil)
	certs := certsD(t, b.host(), "server = \"https://"+host+"\"\nca = \""+ca+"\"\n[host.\"https://"+host+"\"]\n")
	addNamespace(t, certs, host, "server = \"https://"+host+"\"\n")
	r, _ := newRegistry(t, certs, func(o *Options) { o.Roots = trust.Roots })
	_, err := r.Resolve(t.Context(), release.Reference{Repository: b.repository(), Tag: "1"})
	require.ErrorContains(t, err, "404", "with its ca")
	require.ErrorContains(t, err, "unknown authority", "the same host without")
	_, err = r.Resolve(t.Context(), release.Reference{Repository: host + "/app", Tag: "1"})
	require.ErrorContains(t, err, "unknown authority")
}
