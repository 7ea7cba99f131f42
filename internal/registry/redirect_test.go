// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// Blob stores sign the URLs of redirects: no error contains them; the test's guard checks it.
func TestPullErrorsHideRedirectTargets(t *testing.T) {
	t.Parallel()
	stores := []struct {
		title, query string
		answer       http.HandlerFunc
		want         string
		notFound     bool
	}{
		{title: "no longer allowed", query: "X-Signature=" + secret, want: "403 Forbidden", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
		}},
		{title: "vanished", query: "X-Signature=" + secret, want: "not found", notFound: true},
		{title: "no answer", query: "X-Signature=" + secret, want: "EOF", answer: func(w http.ResponseWriter, _ *http.Request) {
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = conn.Close()
			}
		}},
		{title: "on to nowhere", query: "X-Signature=" + secret, want: "redirected to an invalid URL", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://%zz/?X-Signature="+secret)
			w.WriteHeader(http.StatusFound)
		}},
	}
	for _, s := range stores {
		t.Run(s.title, func(t *testing.T) {
			t.Parallel()
			f, store := newTLSFake(t), newTLSFake(t)
			store.answer(s.answer)
			f.answer(func(w http.ResponseWriter, req *http.Request) {
				http.Redirect(w, req, store.URL+req.URL.Path+"?"+s.query, http.StatusTemporaryRedirect)
			})
			r, _ := newRegistry(t, certsD(t, f.host(), f.tlsHost(t)))
			body, err := r.Fetch(t.Context(), f.repository(), ocispec.Descriptor{
				MediaType: ocispec.MediaTypeImageLayerGzip, Digest: digest.FromString("layer"), Size: 5,
			})
			if err == nil { // the request is sent with the first Read
				_, err = io.ReadAll(body)
				require.NoError(t, body.Close())
			}
			require.ErrorContains(t, err, s.want)
			assert.Equal(t, s.notFound, errors.Is(err, release.ErrNotFound))
			require.NotEmpty(t, store.log())
			assert.Contains(t, store.log()[0], secret, "the store itself must see it")
		})
	}
}

// The result of a redirect names its target without its query.
func TestWhereARequestEnded(t *testing.T) {
	t.Parallel()
	f := newTLSFake(t)
	f.tag("there", f.image(t, "linux", "amd64", nil))
	f.answer(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasSuffix(req.URL.Path, "/here") {
			http.Redirect(w, req, "https://u:"+secret+"@"+f.host()+"/v2/app/manifests/there?X-Signature="+secret, http.StatusFound)
		}
	})
	r, _ := newRegistry(t, certsD(t, f.host(), f.tlsHost(t)))
	hosts, err := r.hosts.Of(f.host())
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, f.URL+"/v2/app/manifests/here?ns=x", nil)
	require.NoError(t, err)
	resp, err := hosts[0].Client.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, f.URL+"/v2/app/manifests/there", resp.Request.URL.String())

	got, err := r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "here"})
	require.NoError(t, err)
	assert.Equal(t, f.host(), got.Host)
	assert.False(t, got.Insecure, "both hops count")
}

// One hop without TLS or without a verified certificate makes the answer insecure.
func TestRedirectsThatAreInsecure(t *testing.T) {
	t.Parallel()
	secure, open := newTLSFake(t), newFake(t)
	desc := secure.image(t, "linux", "amd64", nil)
	secure.tag("1", desc)
	open.answer(func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, secure.URL+req.URL.Path, http.StatusTemporaryRedirect)
	})
	// For http hosts with a ca containerd first uses https; without one, the target cannot be verified.
	r, _ := newRegistry(t, certsD(t, open.host(), plainHTTP(open.host())), func(o *Options) { o.Roots = secure.pool })
	got, err := r.Resolve(t.Context(), release.Reference{Repository: open.repository(), Tag: "1"})
	require.NoError(t, err)
	assert.Equal(t, release.Resolved{Digest: desc.Digest, Host: open.host(), Insecure: true}, got)
}

// Redirects to each kind of target, with each code, for a poll and for a config: the requests, their headers, and
// whether the answer counts. The foreign host and the one without TLS record every byte.
func TestRedirectMatrix(t *testing.T) {
	t.Parallel()
	const (
		followed = ""
		toHTTP   = "redirected from https to http"
	)
	targets := []struct {
		title   string
		to      func(s stage, path string) string
		foreign bool // the foreign host is asked
		want    string
	}{
		{"path", func(_ stage, path string) string { return path + "/there" }, false, followed},
		{"relative", func(_ stage, path string) string { return "./" + path[strings.LastIndexByte(path, '/')+1:] + "/there" }, false, followed},
		{"same host", func(s stage, path string) string { return s.home.URL + path + "/there?X-Signature=" + secret }, false, followed},
		{"another port", func(s stage, path string) string { return s.foreign.URL + path + "?X-Signature=" + secret }, true, followed},
		{"another port, no scheme", func(s stage, path string) string { return "//" + s.foreign.Listener.Addr().String() + path }, true, followed},
		{"user in it", func(s stage, path string) string {
			return strings.Replace(s.foreign.URL, "//", "//u:password-elsewhere@", 1) + path
		}, true, followed},
		{"registry as its user", func(s stage, path string) string {
			return "https://" + s.home.host() + "@" + s.foreign.Listener.Addr().String() + path
		}, true, followed},
		{"http", func(s stage, path string) string { return s.plain.URL + path }, false, toHTTP},
		{"http, same host", func(s stage, path string) string { return "http://" + s.home.host() + path }, false, toHTTP},
		{"file", func(stage, string) string { return "file:///etc/shadow" }, false, toHTTP},
		{"no host", func(stage, string) string { return "https:///x?X-Signature=" + secret }, false, "no Host"},
		{"no URL", func(stage, string) string { return "https://%zz?X-Signature=" + secret }, false, "redirected to an invalid URL"},
		{"no URL, and a user", func(stage, string) string { return "https://u:" + secret + "@%zz" }, false, "redirected to an invalid URL"},
		{"control characters", func(stage, string) string { return "/\x7f?X-Signature=" + secret }, false, "malformed header"},
	}
	codes := []int{
		http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
	}
	count := 0
	for _, target := range targets {
		for _, code := range codes {
			count++
			t.Run(fmt.Sprintf("%s %d", target.title, code), func(t *testing.T) {
				t.Parallel()
				s := stage{home: newTLSFake(t), foreign: newWitness(t, httptest.NewTLSServer), plain: newWitness(t, httptest.NewServer)}
				desc := s.home.image(t, "linux", "amd64", nil)
				content := s.home.content
				serve := func(w http.ResponseWriter, req *http.Request) {
					path := strings.TrimSuffix(req.URL.Path, "/there")
					c, ok := content[path[strings.LastIndexByte(path, '/')+1:]]
					if !ok {
						c = content[desc.Digest.String()]
					}
					w.Header().Set("Content-Type", c.kind)
					w.Header().Set(digestHeader, c.digest)
					_, _ = w.Write(c.body)
				}
				s.foreign.answer = serve
				s.home.answer(func(w http.ResponseWriter, req *http.Request) {
					basic(w, req)
					switch {
					case w.Header().Get("WWW-Authenticate") != "":
					case strings.HasSuffix(req.URL.Path, "/there"):
						assert.Equal(t, secret, req.Header.Get("X-Api-Key"), "at home, the header is kept")
						serve(w, req)
					default:
						w.Header().Set("Location", target.to(s, req.URL.Path))
						w.WriteHeader(code)
					}
				})
				r, _ := newRegistry(t, certsD(t, s.home.host(), s.home.tlsHost(t)+"[header]\nx-api-key = \""+secret+"\"\n"), withCredentials)
				got, errTag := r.Resolve(t.Context(), release.Reference{Repository: s.home.repository(), Tag: "1"})
				_, errDigest := r.Describe(t.Context(), s.home.repository(), desc.Digest)
				for _, err := range []error{errTag, errDigest} {
					if target.want == followed {
						require.NoError(t, err)
					} else {
						require.ErrorContains(t, err, target.want)
						assert.Equal(t, target.want == "redirected from https to http", sourceError(t, err).Answered, "containerd may follow it")
					}
				}
				if target.want == followed {
					assert.Equal(t, release.Resolved{Digest: desc.Digest, Host: s.home.host()}, got, "the host that was asked")
				}
				seen := strings.ReplaceAll(s.foreign.sent(), "X-Signature="+secret, "X-Signature=its-own")
				assert.False(t, secretIn(seen), seen)
				assert.Equal(t, target.foreign, seen != "")
				assert.Empty(t, s.plain.sent(), "plain http")
			})
		}
	}
	assert.GreaterOrEqual(t, count, 20)
}
