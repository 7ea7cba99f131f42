// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// For any challenge of a registry, a login and a secret header of hosts.toml reach only the registry and its token
// server, with TLS.
func FuzzChallenge(f *testing.F) {
	for _, seed := range []string{
		`Basic realm="x"`, `Bearer realm="https://registry.suse.com/auth",service="x"`, `Bearer realm="https://scc.suse.com/auth"`,
		`Bearer realm="https://evil.example.org/auth"`, `Bearer realm="http://registry.suse.com/auth"`, `bearer REALM=https://a.example.org`,
		`Bearer realm="https://registry.suse.com@evil.example.org/"`, `Bearer realm="https://registry.suse.com\"@evil.example.org/"`,
		`Bearer realm="//evil.example.org/auth"`, `Bearer`, `Negotiate`, `Bearer realm=""`, `Bearer realm="https://%zz"`,
		`Bearer realm="https://registry.suse.com:443/",realm="https://evil.example.org/"`, `Digest realm="x"`, "Bearer realm=\"https:\\\\evil.example.org\"",
		`Bearer realm="https://registry.suse.com/auth?x=1",scope="a b",error="invalid_token"`,
	} {
		f.Add(seed, `Basic realm="y"`)
	}
	certs := certsD(f, "registry.suse.com", "[header]\nx-api-key = \""+secret+"\"\n")
	f.Fuzz(func(t *testing.T, first, second string) {
		answer := func(req *http.Request) *http.Response {
			resp := &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{digestHeader: {testDigest}}, Request: req, ProtoMajor: 1, ProtoMinor: 1,
				Body: io.NopCloser(strings.NewReader(`{"token":"any-token","access_token":"any-token"}`)),
			}
			if req.URL.Host == "registry.suse.com" && strings.HasPrefix(req.URL.Path, "/v2/") && req.Header.Get("Authorization") == "" {
				resp.StatusCode = http.StatusUnauthorized
				resp.Header["Www-Authenticate"] = []string{first, second}
			}
			return resp
		}
		rt := func(http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				secrets := req.Header.Get("X-Api-Key") + " " + req.Header.Get("Authorization") + " " + req.URL.String()
				if req.Body != nil {
					body, err := io.ReadAll(req.Body)
					require.NoError(t, err)
					secrets += string(body)
				}
				if secretIn(secrets) {
					assert.Equal(t, "https", req.URL.Scheme)
					assert.Contains(t, []string{"registry.suse.com", "scc.suse.com"}, strings.ToLower(req.URL.Hostname()))
					assert.Contains(t, []string{"", "443"}, req.URL.Port())
				}
				return answer(req), nil
			})
		}
		r, _ := newRegistry(t, certs, withCredentials, func(o *Options) { o.Wrap = rt })
		_, err := r.Resolve(t.Context(), suse)
		if err != nil {
			require.ErrorAs(t, err, new(*release.SourceError))
			assert.LessOrEqual(t, r.Counts().Requests, uint64(4))
		}
	})
}
