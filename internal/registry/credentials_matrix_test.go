// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// witness is a host that records every byte that it receives.
type witness struct {
	*httptest.Server
	answer http.HandlerFunc // nil: a token
	mu     sync.Mutex
	seen   bytes.Buffer
}

func newWitness(t *testing.T, start func(http.Handler) *httptest.Server) *witness {
	t.Helper()
	w := &witness{}
	w.Server = start(w)
	t.Cleanup(w.Close)
	return w
}

func (w *witness) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	dump, err := httputil.DumpRequest(req, true)
	w.mu.Lock()
	_, _ = w.seen.Write(dump)
	answer := w.answer
	w.mu.Unlock()
	switch {
	case err != nil:
		rw.WriteHeader(http.StatusBadRequest)
	case answer != nil:
		answer(rw, req)
	default:
		rw.Header().Set(digestHeader, testDigest)
		_, _ = rw.Write([]byte(`{"token":"any-token","access_token":"any-token"}`))
	}
}

func (w *witness) sent() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen.String()
}

// stage has a registry, a foreign host with TLS, and one without.
type stage struct {
	home           *fake
	foreign, plain *witness
}

func challenge(w http.ResponseWriter, values ...string) {
	for _, value := range values {
		w.Header().Add("WWW-Authenticate", value)
	}
	w.WriteHeader(http.StatusUnauthorized)
}

func bearer(realm string) string { return `Bearer realm="` + realm + `",service="x"` }

// wants returns a registry that requires any token, from a realm.
func wants(realm func(stage) string) func(stage) http.HandlerFunc {
	return func(s stage) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			switch {
			case strings.HasPrefix(req.URL.Path, "/token"):
				_, _ = fmt.Fprintf(w, `{"token":%[1]q,"access_token":%[1]q}`, secretToken)
			case !strings.HasPrefix(req.Header.Get("Authorization"), "Bearer "):
				challenge(w, bearer(realm(s)))
			}
		}
	}
}

// token returns a registry whose own token server gives another answer.
func token(answer func(stage, http.ResponseWriter, *http.Request)) func(stage) http.HandlerFunc {
	return func(s stage) http.HandlerFunc {
		next := wants(func(s stage) string { return s.home.URL + "/token" })(s)
		return func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path == "/token" {
				answer(s, w, req)
				return
			}
			next(w, req)
		}
	}
}

// moved returns a registry that redirects authenticated clients.
func moved(code int, target func(stage) string) func(stage) http.HandlerFunc {
	return func(s stage) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			if strings.HasSuffix(req.URL.Path, "/back") {
				return
			}
			if basic(w, req); w.Header().Get("WWW-Authenticate") == "" {
				http.Redirect(w, req, target(s), code)
			}
		}
	}
}

type redirectCase struct {
	title   string
	home    func(stage) http.HandlerFunc
	foreign func(stage) http.HandlerFunc // nil: issues tokens
	asked   bool                         // the foreign host receives a request
	want    string                       // error; empty if the poll succeeds
	listed  bool                         // the foreign host is a configured token server of home
}

func realmCases() []redirectCase {
	at := func(text func(stage) string) func(stage) http.HandlerFunc { return wants(text) }
	second := func(s stage) http.HandlerFunc { // the realm changes later
		var asked atomic.Int32
		return func(w http.ResponseWriter, req *http.Request) {
			realm := s.home.URL + "/token"
			if asked.Add(1) > 2 {
				realm = s.foreign.URL + "/token"
			}
			if req.URL.Path == "/token" {
				_, _ = fmt.Fprintf(w, `{"access_token":%q}`, secretToken)
			} else if req.Header.Get("Authorization") != "Bearer any-token" {
				challenge(w, bearer(realm)+`,error="invalid_token"`)
			}
		}
	}
	both := func(values ...string) func(stage) http.HandlerFunc {
		return func(s stage) http.HandlerFunc {
			return func(w http.ResponseWriter, req *http.Request) {
				if req.Header.Get("Authorization") == "" {
					challenge(w, strings.Split(strings.ReplaceAll(strings.Join(values, "|"), "FOREIGN", s.foreign.URL), "|")...)
				}
			}
		}
	}
	return []redirectCase{
		{title: "realm: the registry itself", home: at(func(s stage) string { return s.home.URL + "/token" })},
		{title: "realm: another host", home: at(func(s stage) string { return s.foreign.URL + "/token" }), asked: true},
		{title: "realm: another host that is listed", home: at(func(s stage) string { return s.foreign.URL + "/token" }), asked: true, listed: true},
		{title: "realm: listed, but http", home: at(func(s stage) string { return "http://" + s.foreign.Listener.Addr().String() }), listed: true, want: "plain http"},
		{title: "realm: http on another host", home: at(func(s stage) string { return s.plain.URL + "/token" }), want: "plain http"},
		{title: "realm: http on the registry", home: at(func(s stage) string { return "http://" + s.home.host() + "/token" }), want: "plain http"},
		{title: "realm: user in it", home: at(func(s stage) string {
			return strings.Replace(s.foreign.URL, "//", "//a:password-elsewhere@", 1) + "/token"
		}), asked: true},
		{title: "realm: registry as its user", home: at(func(s stage) string {
			return "https://" + s.home.host() + "@" + s.foreign.Listener.Addr().String() + "/token"
		}), asked: true},
		{title: "realm: no URL", home: at(func(stage) string { return "https://%zz" }), want: "token server"},
		{title: "realm: no host", home: at(func(stage) string { return "/token" }), want: "plain http"},
		{title: "realm: none", home: both("Bearer service=x"), want: "realm"},
		{title: "realm: foreign, or a password", home: both(bearer("FOREIGN"), `Basic realm="x"`), asked: true},
		{title: "realm: a password, or foreign", home: both(`Basic realm="x"`, bearer("FOREIGN")), asked: true},
		{title: "realm: leaves in mid-life", home: second, asked: true},
	}
}

func redirectCases() []redirectCase {
	to := func(path string) func(stage) string { return func(s stage) string { return s.foreign.URL + path } }
	answers := func(h func(stage, http.ResponseWriter)) func(stage) http.HandlerFunc {
		return func(s stage) http.HandlerFunc { return func(w http.ResponseWriter, _ *http.Request) { h(s, w) } }
	}
	location := func(code int, target func(stage) string) func(stage) http.HandlerFunc {
		return answers(func(s stage, w http.ResponseWriter) {
			w.Header().Set("Location", target(s))
			w.WriteHeader(code)
		})
	}
	leave := func(code int) func(stage) http.HandlerFunc {
		return token(func(s stage, w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, s.foreign.URL+"/token", code)
		})
	}
	return []redirectCase{
		{title: "token: 307 takes the body along", home: leave(http.StatusTemporaryRedirect), want: "another host"},
		{title: "token: 308 as well", home: leave(http.StatusPermanentRedirect), want: "another host"},
		{title: "token: 302 drops it", home: leave(http.StatusFound), asked: true},
		{title: "token: GET with a password, 307", asked: true, home: token(func(s stage, w http.ResponseWriter, req *http.Request) {
			if req.Method == http.MethodPost {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			http.Redirect(w, req, s.foreign.URL+"/token", http.StatusTemporaryRedirect)
		})},
		{title: "token: to http", want: "to http", home: token(func(s stage, w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, s.plain.URL+"/token", http.StatusFound)
		})},
		{
			title: "registry: to one that wants a password", home: moved(http.StatusFound, to("/x")), asked: true, want: "401 from another host",
			foreign: answers(func(_ stage, w http.ResponseWriter) { challenge(w, `Basic realm="x"`) }),
		},
		{
			title: "registry: to one whose token server wants a login", home: moved(http.StatusFound, to("/x")), asked: true,
			want:    "token server: 401",
			foreign: answers(func(s stage, w http.ResponseWriter) { challenge(w, bearer(s.foreign.URL)) }),
		},
		{
			title: "registry: to one that wants an anonymous token", home: moved(http.StatusFound, to("/x")), asked: true,
			foreign: func(s stage) http.HandlerFunc {
				return func(w http.ResponseWriter, req *http.Request) {
					switch {
					case req.URL.Path == "/token":
						_, _ = fmt.Fprint(w, `{"token":"anonymous-one"}`)
					case req.Header.Get("Authorization") != "Bearer anonymous-one":
						challenge(w, bearer(s.foreign.URL+"/token"))
					default:
						w.Header().Set(digestHeader, testDigest)
					}
				}
			},
		},
		{
			title: "registry: to one that wants a token of the registry itself", home: func(s stage) http.HandlerFunc {
				next := moved(http.StatusFound, to("/x"))(s)
				return func(w http.ResponseWriter, req *http.Request) {
					if req.URL.Path != "/token" {
						next(w, req)
						return
					}
					if req.Header.Get("Authorization") != "" || req.Header.Get("X-Api-Key") != "" || req.Method != http.MethodGet {
						_, _ = fmt.Fprintf(w, `{"token":%q}`, secretToken) // which would be sent to the other host
						return
					}
					_, _ = fmt.Fprint(w, `{"token":"anonymous-one"}`)
				}
			}, asked: true,
			foreign: func(s stage) http.HandlerFunc {
				return func(w http.ResponseWriter, req *http.Request) {
					if req.Header.Get("Authorization") == "" {
						challenge(w, bearer(s.home.URL+"/token"))
						return
					}
					w.Header().Set(digestHeader, testDigest)
				}
			},
		},
		{
			title: "registry: there and back", home: moved(http.StatusFound, to("/x")), asked: true,
			foreign: location(http.StatusFound, func(s stage) string { return s.home.URL + "/back" }),
		},
		{
			title: "registry: there and on to http", home: moved(http.StatusFound, to("/x")), asked: true, want: "to http",
			foreign: location(http.StatusFound, func(s stage) string { return s.plain.URL }),
		},
		{title: "registry: a signed location, and on", home: signedChain, asked: true},
	}
}

// No secret of a registry reaches another host, whatever the registry answers, and no error or log contains one.
func TestCredentialsStayAtHome(t *testing.T) {
	t.Parallel()
	cases := append(realmCases(), redirectCases()...)
	require.GreaterOrEqual(t, len(cases), 20)
	for _, c := range cases {
		t.Run(c.title, func(t *testing.T) {
			t.Parallel()
			s := stage{home: newTLSFake(t), foreign: newWitness(t, httptest.NewTLSServer), plain: newWitness(t, httptest.NewServer)}
			if c.foreign != nil {
				s.foreign.answer = c.foreign(s)
			}
			inner := c.home(s)
			s.home.answer(func(w http.ResponseWriter, req *http.Request) {
				w.Header().Set(digestHeader, testDigest)
				if inner(w, req); !w.(*written).done {
					w.WriteHeader(http.StatusOK)
				}
			})
			logged := new(bytes.Buffer)
			r, _ := newRegistry(t, certsD(t, s.home.host(), s.home.tlsHost(t)+"[header]\nx-api-key = \""+secret+"\"\n"), withCredentials,
				func(o *Options) {
					o.Log = slog.New(slog.NewTextHandler(logged, nil))
					if c.listed {
						o.TokenServers = map[string]string{s.home.host(): s.foreign.Listener.Addr().String()}
					}
				})
			var texts string
			var err error
			for range 2 {
				_, err = r.Resolve(t.Context(), release.Reference{Repository: s.home.repository(), Tag: "1"})
				if err != nil {
					texts += err.Error()
				}
			}
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
			assert.False(t, secretIn(texts+logged.String()), "errors %s\nlog %s", texts, logged)
			assert.Equal(t, c.asked, s.foreign.sent() != "", "foreign host asked")
			assert.Equal(t, c.listed && c.asked, secretIn(s.foreign.sent()), s.foreign.sent())
			assert.Empty(t, s.plain.sent(), "plain http")
		})
	}
}

const testDigest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// signedChain redirects to a signed URL on the same host, and from there to another one: the Referer of the last
// request would contain the signature.
func signedChain(s stage) http.HandlerFunc {
	first := moved(http.StatusFound, func(stage) string { return "/signed?X-Signature=" + secret })(s)
	return func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/signed" {
			http.Redirect(w, req, s.foreign.URL+"/x", http.StatusFound)
			return
		}
		first(w, req)
	}
}

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
