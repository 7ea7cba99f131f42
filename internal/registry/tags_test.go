// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/ocimanifest"
)

// pages serves a tag list of count pages with one tag each; link words the Link
// header for the next page.
func pages(count int, link func(req *http.Request, next int) string) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		page, _ := strconv.Atoi(req.URL.Query().Get("last"))
		if page+1 < count {
			w.Header().Set("Link", link(req, page+1))
		}
		_, _ = fmt.Fprintf(w, `{"name":"app","tags":["t%d"]}`, page)
	}
}

func relative(req *http.Request, next int) string {
	return fmt.Sprintf(`<%s?last=%d&n=1000>; rel="next"`, req.URL.Path, next)
}

func TestPagesAreFollowed(t *testing.T) {
	t.Parallel()
	links := map[string]func(*http.Request, int) string{
		"path":       relative,
		"query only": func(_ *http.Request, next int) string { return fmt.Sprintf(`<?last=%d>; rel=next`, next) },
		"absolute": func(req *http.Request, next int) string {
			return fmt.Sprintf(`<http://%s%s?last=%d>; rel="next"`, req.Host, req.URL.Path, next)
		},
		"with a user's port, no scheme": func(req *http.Request, next int) string {
			return fmt.Sprintf(`<//%s%s?last=%d>; rel=next`, req.Host, req.URL.Path, next)
		},
		"without the port (behind a proxy that does not name it)": func(req *http.Request, next int) string {
			host, _, _ := net.SplitHostPort(req.Host)
			return fmt.Sprintf(`<http://%s%s?last=%d>; rel="next"`, host, req.URL.Path, next)
		},
		"second of two": func(req *http.Request, next int) string {
			return `</first,page>; rel="first"; title="a, b", ` + relative(req, next)
		},
	}
	for title, link := range links {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.answer(pages(3, link))
			r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
			names, err := r.Tags(t.Context(), f.repository())
			require.NoError(t, err)
			assert.Equal(t, []string{"t0", "t1", "t2"}, names)
			assert.Equal(t, "GET /v2/app/tags/list?n=1000", f.log()[0])
		})
	}
}

// Hosts that refuse the size of a page are asked for one of their own.
func TestHostsWithAGreatestPage(t *testing.T) {
	t.Parallel()
	refuse := func(code int, when func(*http.Request) bool) http.HandlerFunc {
		next := pages(3, func(req *http.Request, next int) string {
			return fmt.Sprintf(`<%s?last=%d&n=100>; rel="next"`, req.URL.Path, next)
		})
		return func(w http.ResponseWriter, req *http.Request) {
			if when(req) {
				w.WriteHeader(code)
				return
			}
			next(w, req)
		}
	}
	ours := func(req *http.Request) bool { return req.URL.Query().Get("n") == "1000" }
	later := func(req *http.Request) bool { return req.URL.Query().Get("last") == "1" }
	always := func(*http.Request) bool { return true }
	hosts := []struct {
		title  string
		answer http.HandlerFunc
		status int // of the error
		asked  int
	}{
		{"distribution 3", refuse(400, ours), 0, 4},
		{"Quay", refuse(413, ours), 0, 4},
		{"422", refuse(422, ours), 0, 4},
		{"Quay, of old: takes no notice", refuse(0, func(*http.Request) bool { return false }), 0, 3},
		{"refuses the list", refuse(400, always), 400, 2},
		{"refuses a later page", refuse(400, later), 400, 2},
		{"403 is about the list", refuse(403, ours), 403, 1},
		{"404 is about the repository", refuse(404, ours), 404, 1},
		{"429 is about us", refuse(429, ours), 429, 1},
	}
	for _, h := range hosts {
		t.Run(h.title, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.answer(h.answer)
			r, _ := newRegistry(t, certsD(t, "registry.example.com", fmt.Sprintf("server = %q\n", f.URL)))
			names, err := r.Tags(t.Context(), "registry.example.com/app")
			assert.Len(t, f.log(), h.asked)
			for _, line := range f.log() {
				assert.Contains(t, line, "ns=registry.example.com")
			}
			if h.status == 0 {
				require.NoError(t, err)
				assert.Equal(t, []string{"t0", "t1", "t2"}, names)
				return
			}
			var source *release.SourceError
			require.ErrorAs(t, err, &source)
			assert.Equal(t, h.status, source.Status)
			assert.Equal(t, h.status == 404, errors.Is(err, release.ErrNotFound))
		})
	}
}

// Pages may be empty and overlap; the order is the host's.
func TestOddPages(t *testing.T) {
	t.Parallel()
	bodies := []string{`{"tags":["b","a"]}`, `{"tags":[]}`, `{"tags":["a","c"]}`, `{"name":"app"}`, `{"tags":["d","d"]}`, `{"tags":null}`}
	f := newFake(t)
	f.answer(tagPages(len(bodies), func(page int) string { return bodies[page] }))
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
	names, err := r.Tags(t.Context(), f.repository())
	require.NoError(t, err)
	assert.Equal(t, []string{"b", "a", "c", "d"}, names)
}

func TestMirrorIsToldTheNamespaceOnEachPage(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answer(pages(2, relative))
	r, _ := newRegistry(t, certsD(t, "registry.example.com", fmt.Sprintf("[host.%q]\n", f.URL)))
	_, err := r.Tags(t.Context(), "registry.example.com/app")
	require.NoError(t, err)
	assert.Equal(t, []string{
		"GET /v2/app/tags/list?n=1000&ns=registry.example.com",
		"GET /v2/app/tags/list?last=1&n=1000&ns=registry.example.com",
	}, f.log())
}

func TestPagesThatAreRefused(t *testing.T) {
	t.Parallel()
	other := newFake(t)
	lists := []struct {
		title  string
		answer http.HandlerFunc
		want   string
		asked  int
	}{
		{"another host", pages(2, func(req *http.Request, next int) string {
			return fmt.Sprintf(`<%s%s?last=%d>; rel="next"`, other.URL, req.URL.Path, next)
		}), "leads to another host", 1},
		{"another host, no scheme", pages(2, func(*http.Request, int) string {
			return `<//` + other.host() + `/v2/app/tags/list?last=1>; rel="next"`
		}), "leads to another host", 1},
		{"another scheme", pages(2, func(*http.Request, int) string { return `<file:///etc/passwd>; rel="next"` }), "leads to another host", 1},
		{"with a user", pages(2, func(req *http.Request, _ int) string {
			return `<http://u:p@` + req.Host + `/v2/>; rel="next"`
		}), "leads to another host", 1},
		{"another port", pages(2, func(req *http.Request, next int) string {
			return fmt.Sprintf(`<http://127.0.0.1:1%s?last=%d>; rel="next"`, req.URL.Path, next)
		}), "leads to another host", 1},
		{"to TLS", pages(2, func(req *http.Request, next int) string {
			return fmt.Sprintf(`<https://%s%s?last=%d>; rel="next"`, req.Host, req.URL.Path, next)
		}), "leads to another host", 1},
		{"no URL", pages(2, func(*http.Request, int) string { return `<http://%zz/>; rel=next` }), "no URL", 1},
		{"in a circle", func(w http.ResponseWriter, req *http.Request) {
			page, _ := strconv.Atoi(req.URL.Query().Get("last"))
			w.Header().Set("Link", relative(req, 1+page%3))
			_, _ = fmt.Fprintf(w, `{"tags":["t%d"]}`, page)
		}, "page 4 repeats", 4},
		{"same page", func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Link", `<`+req.URL.RequestURI()+`>; rel="next"`)
			_, _ = w.Write([]byte(`{"tags":[]}`))
		}, "page 1 repeats", 1},
		{"same content", func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Link", fmt.Sprintf(`<?last=%sx>; rel="next"`, req.URL.Query().Get("last")))
			_, _ = w.Write([]byte(`{"tags":["1"]}`))
		}, "page repeats", 2},
		{"endless", func(w http.ResponseWriter, req *http.Request) {
			pages(1<<30, relative)(w, req)
		}, "more than 200 pages", 200},
		{"no JSON", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`no JSON`)) }, "invalid character", 1},
		{"torn", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte(`{"tags":["1"]}`))
		}, "unexpected EOF", 1},
		{"405", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) }, "405", 1},
	}
	for _, list := range lists {
		t.Run(list.title, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.answer(list.answer)
			r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
			names, err := r.Tags(t.Context(), f.repository())
			var source *release.SourceError
			require.ErrorAs(t, err, &source)
			assert.ErrorContains(t, err, list.want)
			assert.Empty(t, names)
			assert.Len(t, f.log(), list.asked)
		})
	}
	assert.Empty(t, other.log())
}

func TestWhatIsNoTagIsLeftOut(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answer(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"tags":["1.0","1.0","a b","../x","","-x","latest","` + strings.Repeat("x", 129) + `"]}`))
	})
	logged := new(bytes.Buffer)
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())), func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(logged, nil))
	})
	names, err := r.Tags(t.Context(), f.repository())
	require.NoError(t, err)
	assert.Equal(t, []string{"1.0", "latest"}, names)
	assert.Contains(t, logged.String(), "count=5")
}

func TestTagsOfTheNextHostOnly(t *testing.T) {
	t.Parallel()
	upstream, mirror := newFake(t), newFake(t)
	mirror.answer(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Query().Get("last") != "" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Link", `<?last=1>; rel="next"`)
		_, _ = w.Write([]byte(`{"tags":["from-mirror"]}`))
	})
	upstream.answer(pages(1, relative))
	r, _ := newRegistry(t, certsD(t, upstream.host(), fmt.Sprintf("server = %q\n[host.%q]\n", upstream.URL, mirror.URL)))
	names, err := r.Tags(t.Context(), upstream.repository())
	require.NoError(t, err)
	assert.Equal(t, []string{"t0"}, names, "half a list of the mirror is none")
}

// A registry behind a TLS proxy names itself as it knows itself.
func TestNextPageStaysAtTheOriginOfThePage(t *testing.T) {
	t.Parallel()
	const rest = "/v2/app/tags/list?last=x"
	links := []struct{ page, link, want string }{ // want empty: refused
		{"https://m.example.com", "http://m.example.com", "https://m.example.com"},
		{"https://m.example.com", "https://M.example.com:443", "https://M.example.com:443"},
		{"https://m.example.com:5000", "http://m.example.com:5000", "https://m.example.com:5000"},
		{"https://m.example.com:5000", "https://m.example.com", "https://m.example.com:5000"},
		{"https://m.example.com:5000", "http://m.example.com", "https://m.example.com:5000"},
		{"http://m.example.com:5000", "http://m.example.com", "http://m.example.com:5000"},
		{"https://[::1]:5000", "https://[::1]:5000", "https://[::1]:5000"},
		{"https://[::1]:5000", "http://[::1]", "https://[::1]:5000"},
		{"http://m.example.com", "https://m.example.com", ""},
		{"https://m.example.com:5000", "https://m.example.com:5001", ""},
		{"https://m.example.com:5000", "https://m.example.com.evil.org:5000", ""},
		{"https://m.example.com:5000", "https://m.example.com:5000@evil.org", ""},
		{"https://m.example.com:5000", "https://evil.example.org", ""},
		{"http://m.example.com", "http://evil.example.org", ""},
		{"https://m.example.com", "ftp://m.example.com", ""},
	}
	for _, l := range links {
		next, err := nextPage(mustURL(t, l.page+"/v2/app/tags/list?n=1000"), []string{"<" + l.link + rest + ">; rel=next"})
		if l.want == "" {
			require.ErrorContains(t, err, "leads to another host", l)
			continue
		}
		require.NoError(t, err, l)
		assert.Equal(t, l.want+rest, next.String())
	}
}

func TestNextLink(t *testing.T) {
	t.Parallel()
	headers := map[string]string{
		`</a>; rel="next"`:                          "/a",
		`</a>; REL=Next`:                            "/a",
		`</a>; rel="last next"`:                     "/a",
		`</a>; rel=prev, </b>; rel=next`:            "/b",
		`</a>; title="b,</c>;rel=next,"; rel=prev`:  "",
		`</a>; title="\",</c>;rel=next,"; rel=prev`: "",
		`</a>; rel="nextish"`:                       "",
		`</a>`:                                      "",
		`</a>; rel=next; rel=prev`:                  "",
		`</a>; rel="next`:                           "",
		`</a>; rel=, </b>; rel=next`:                "/b",
		`/a; rel=next`:                              "",
		`</a; rel=next`:                             "",
		`</first>; rel=next, </second>; rel="next"`: "/first",
	}
	for header, want := range headers {
		got, ok := nextLink([]string{header})
		assert.Equal(t, want, got, header)
		assert.Equal(t, want != "", ok, header)
	}
}

func FuzzLink(f *testing.F) {
	for _, seed := range []string{
		`</v2/app/tags/list?last=a&n=2>; rel="next"`, `<a>; rel=prev, <b>; rel="x next"`,
		`<//evil/x>; rel=next`, `<http://h.example.com:443/>; rel="next"; title="a\"b,<c>"`,
		`<`, `<a`, `<a>;`, `<https://u@h.example.com/>;rel=next`, `<http:opaque>;rel=next`, `<?#f>;rel=next`,
	} {
		f.Add(seed)
	}
	page := &url.URL{Scheme: "https", Host: "h.example.com", Path: "/v2/app/tags/list", RawQuery: "n=1000"}
	f.Fuzz(func(t *testing.T, header string) {
		next, err := nextPage(page, []string{header})
		if err != nil || next == nil {
			return
		}
		// Read again as the client will: what counts is where the request goes.
		again, err := url.Parse(next.String())
		require.NoError(t, err)
		assert.Equal(t, "https", again.Scheme)
		assert.Equal(t, "h.example.com", strings.ToLower(again.Hostname()))
		assert.Contains(t, []string{"", "443"}, again.Port())
		assert.Nil(t, again.User)
		assert.Empty(t, again.Fragment)
	})
}

// A page is counted before it is decoded: its size allows three times the tags of a whole list.
func TestAPageIsCountedBeforeItIsDecoded(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answer(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"tags":["a"%s]}`, strings.Repeat(`,""`, maxTags))
	})
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
	_, err := r.Tags(t.Context(), f.host()+"/app")
	require.ErrorIs(t, err, ocimanifest.ErrTooMany)
}
