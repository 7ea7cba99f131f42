// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
)

// inner is a service on the node that counts connections.
type inner struct {
	*httptest.Server
	connections, requests atomic.Int32
}

func newInner(t *testing.T) *inner {
	t.Helper()
	in := &inner{}
	in.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		in.requests.Add(1)
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		w.Header().Set(digestHeader, testDigest)
	}))
	in.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			in.connections.Add(1)
		}
	}
	in.Start()
	t.Cleanup(in.Close)
	return in
}

// port returns ":" and the port.
func (in *inner) port() string {
	return in.Listener.Addr().String()[strings.LastIndex(in.Listener.Addr().String(), ":"):]
}

const publicHost = "mirror.example.com"

// behindProxy makes a fake the proxy for publicHost, whose address is unknown, so it counts as a public host.
func (f *fake) behindProxy(t *testing.T) func(*Options) {
	t.Helper()
	proxy := mustURL(t, f.URL)
	return func(o *Options) {
		o.Proxy = func(req *http.Request) (*url.URL, error) {
			if req.URL.Hostname() == publicHost {
				return proxy, nil
			}
			return nil, nil
		}
	}
}

func resolvePublic(t *testing.T, r *guarded) error {
	t.Helper()
	_, err := r.Resolve(t.Context(), release.Reference{Repository: publicHost + "/app", Tag: "1"})
	return err
}

// A public host cannot make the node connect to an address that only the node or its site reaches: by an address, by a
// name that resolves to one, for a token, or over an open connection. Hosts in hosts.toml are asked.
func TestNothingLeadsInward(t *testing.T) {
	t.Parallel()
	redirect := func(to string) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "http://"+to+"/latest/meta-data?X-Signature="+secret, http.StatusFound)
		}
	}
	realm := func(to string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+to+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	}
	for title, c := range map[string]struct {
		host   string // before the port
		answer func(to string) http.HandlerFunc
		open   bool // a connection to it is already open
		named  bool
	}{
		"an address":                  {host: "127.0.0.1", answer: redirect},
		"an address, written as IPv6": {host: "[::ffff:127.0.0.1]", answer: redirect},
		"a name":                      {host: "localhost", answer: redirect},
		"no address":                  {host: "0.0.0.0", answer: redirect},
		"a realm":                     {host: "127.0.0.1", answer: realm},
		"a realm with a name":         {host: "localhost", answer: realm},
		"an open connection":          {host: "localhost", answer: redirect, open: true},
		"a named host":                {host: "localhost", answer: redirect, named: true},
		"a named realm":               {host: "localhost", answer: realm, named: true},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			f, in := newFake(t), newInner(t)
			to := c.host + in.port()
			f.answer(c.answer(to))
			toml := plainHTTP(publicHost)
			if c.named {
				toml += "[host.\"http://" + to + "\"]\ncapabilities = [\"push\"]\n"
			}
			dir := certsD(t, publicHost, toml)
			addNamespace(t, dir, to, plainHTTP(to))
			r, _ := newRegistry(t, dir, f.behindProxy(t))
			if c.open {
				_, err := r.Resolve(t.Context(), release.Reference{Repository: to + "/app", Tag: "1"})
				require.NoError(t, err)
			}
			connections, requests := in.connections.Load(), in.requests.Load()
			err := resolvePublic(t, r)
			if c.named {
				assert.Equal(t, requests+1, in.requests.Load())
				return
			}
			require.ErrorIs(t, err, transport.ErrInward)
			assert.True(t, sourceError(t, err).Answered, "containerd follows it")
			require.ErrorContains(t, err, to+" has a loopback address")
			assert.Equal(t, publicHost, sourceError(t, err).Host)
			assert.Equal(t, connections, in.connections.Load())
			assert.Equal(t, requests, in.requests.Load())
			if c.open {
				_, err := r.Resolve(t.Context(), release.Reference{Repository: to + "/app", Tag: "1"})
				require.NoError(t, err, "it is asked as ever")
			}
		})
	}
}

// If a proxy makes the connections, an address is rejected before the proxy is asked.
func TestNothingLeadsInwardThroughAProxy(t *testing.T) {
	t.Parallel()
	for _, to := range []string{
		"169.254.169.254", "10.0.0.1:8080", "[fe80::1%25eth0]", "[fd00:ec2::254]", "[64:ff9b::a9fe:a9fe]",
		"169.254.169.254.", "2852039166", "0xa9.254.169.254", "169.254.43518", "127.1:80", "0X7F000001", // as parsed by inet_aton(3)
		"localhost.", "a.localhost", "A.LocalHost.:8080",
	} {
		f := newFake(t)
		f.answer(func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "http://"+to+"/latest/meta-data", http.StatusFound)
		})
		proxy := mustURL(t, f.URL)
		r, _ := newRegistry(t, certsD(t, publicHost, plainHTTP(publicHost)), func(o *Options) {
			o.Proxy = func(*http.Request) (*url.URL, error) { return proxy, nil }
		})
		require.ErrorIs(t, resolvePublic(t, r), transport.ErrInward, to)
		assert.Len(t, f.log(), 1, to)
	}
}

// A failure at the target of a host's redirect counts as that host's failure: requests of others to the target are not
// affected.
func TestRegistryCannotBlockAnotherOne(t *testing.T) {
	t.Parallel()
	torn := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for title, c := range map[string]struct {
		ca     bool // the registry trusts the authority of the other one
		answer http.HandlerFunc
		realm  bool
	}{
		"TLS":           {answer: nil},
		"TLS, a realm":  {answer: nil, realm: true},
		"torn":          {ca: true, answer: torn},
		"500":           {ca: true, answer: busy(500, "")},
		"429":           {ca: true, answer: busy(429, "")},
		"500 to tokens": {ca: true, answer: busy(500, ""), realm: true},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			bad, good, clock := newOwnTLS(t, func(*ownTLS) {}), newTLSFake(t), newClock()
			good.tag("1", good.image(t, "linux", "amd64", nil))
			good.answer(func(w http.ResponseWriter, req *http.Request) {
				if strings.HasPrefix(req.URL.Path, "/trap") && c.answer != nil {
					c.answer(w, req)
				}
			})
			bad.answer(func(w http.ResponseWriter, req *http.Request) {
				if c.realm {
					w.Header().Set("WWW-Authenticate", `Bearer realm="`+good.URL+`/trap",service="x"`)
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				http.Redirect(w, req, good.URL+"/trap", http.StatusTemporaryRedirect)
			})
			authorities := `"` + bad.ca + `"`
			if c.ca {
				authorities += `, "` + good.ca(t) + `"`
			}
			dir := certsD(t, good.host(), good.tlsHost(t))
			addNamespace(t, dir, bad.host(), "server = \""+bad.URL+"\"\nca = ["+authorities+"]\n")
			r, _ := newRegistry(t, dir, clock.option)
			for range openAfter {
				require.Error(t, bad.poll(t, r))
			}
			source := sourceError(t, bad.poll(t, r))
			assert.True(t, source.Unasked, "who is led there is held")
			assert.Equal(t, bad.host(), source.Host)
			assert.ErrorContains(t, source, good.host()+": ")
			assert.ErrorContains(t, source, "not asked until 2026-11-21T12:01:00Z")
			for range 2 * openAfter {
				require.NoError(t, good.poll(t, r))
			}
			assert.True(t, sourceError(t, bad.poll(t, r)).Unasked, "and stays so")
		})
	}
}
