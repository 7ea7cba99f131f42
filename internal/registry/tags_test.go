// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// pages serves a tag list of count pages with one tag each; link formats the Link header for the next page.
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
		"path": relative,
		"https behind a proxy with http": func(req *http.Request, next int) string {
			return fmt.Sprintf(`<https://%s%s?last=%d>; rel="next"`, req.Host, req.URL.Path, next)
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

// Hosts that refuse the page size are asked without one.
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
		{"500", refuse(500, ours), 0, 4},
		{"500 is about the host", refuse(500, always), 500, 2},
		{"503 is about the host", refuse(503, ours), 503, 1},
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
	bodies := []string{
		`{"tags":["b","a"]}`, `{"tags":[]}`, `{"tags":["a","c"]}`, `{"name":"app"}`, `{"tags":["d","d"]}`, `{"tags":null}`, `{"tags":["d"]}`,
	}
	f := newFake(t)
	f.answer(tagPages(len(bodies), func(page int) string { return bodies[page] }))
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
	names, err := r.Tags(t.Context(), f.repository())
	require.NoError(t, err)
	assert.Equal(t, []string{"b", "a", "c", "d"}, names)
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
		{"another host, no list", pages(2, func(*http.Request, int) string {
			return fmt.Sprintf(`<%s/v2/_next/1>; rel="next"`, other.URL)
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
		{"the first page as the last", tagPages(2, func(int) string { return `{"tags":["1","2"]}` }), "page repeats", 2},
		{"an earlier tag as the last page", tagPages(2, func(page int) string {
			return []string{`{"tags":["1","2"]}`, `{"tags":["1"]}`}[page]
		}), "page repeats", 2},
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

func TestInvalidTagsAreLeftOut(t *testing.T) {
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

// By the distribution specification a full page needs no Link: go-containerregistry's registry and Nexus's groups send
// none.
func TestFullPagesWithoutALink(t *testing.T) {
	t.Parallel()
	served := func(count int, ignored ...string) http.HandlerFunc {
		var all []string
		for n := range count {
			all = append(all, fmt.Sprintf("%05d", n))
		}
		return func(w http.ResponseWriter, req *http.Request) {
			query, left := req.URL.Query(), all
			if last := query.Get("last"); last != "" && !slices.Contains(ignored, "last") {
				at, _ := slices.BinarySearch(all, last+"x")
				left = all[at:]
			}
			if n, err := strconv.Atoi(query.Get("n")); err == nil && !slices.Contains(ignored, "n") {
				left = left[:min(n, len(left))]
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"name": "app", "tags": left})
		}
	}
	refused := func(name string, next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Query().Has(name) {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			next(w, req)
		}
	}
	for title, c := range map[string]struct {
		answer     http.HandlerFunc
		want, sent int
	}{
		"one short page":            {served(999), 999, 1},
		"one page":                  {served(1000), 1000, 2},
		"two pages":                 {served(1001), 1001, 2},
		"three pages":               {served(2500), 2500, 3},
		"last is ignored":           {served(2500, "last"), 2500, 3},
		"last is ignored, one page": {served(1000, "last"), 1000, 3},
		"last is refused":           {refused("last", served(2500)), 2500, 3},
		"everything in one page":    {served(2500, "n"), 2500, 1},
		"n is refused":              {refused("n", served(1000)), 1000, 2},
		"beyond the end it begins again": {func(w http.ResponseWriter, req *http.Request) { // as go-containerregistry
			if req.URL.Query().Get("last") == "01999" {
				req.URL.RawQuery = "n=1000"
			}
			served(2000)(w, req)
		}, 2000, 4},
		"the last page has a Link": {func(w http.ResponseWriter, req *http.Request) {
			if !req.URL.Query().Has("last") {
				w.Header().Set("Link", `<?last=00999&n=1000>; rel="next"`)
			}
			served(2000)(w, req)
		}, 2000, 2},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.answer(c.answer)
			r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
			names, err := r.Tags(t.Context(), f.repository())
			require.NoError(t, err)
			assert.Equal(t, [2]int{c.want, c.sent}, [2]int{len(names), len(f.log())}) // not a thousand names
		})
	}
}

// A page that is missing leaves the list incomplete, also without a Link.
func TestFullPageWithoutItsSuccessor(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answer(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Query().Has("last") {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprintf(w, `{"tags":["0"%s]}`, numbered(`,"%d"`, 999))
	})
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
	_, err := r.Tags(t.Context(), f.repository())
	require.ErrorContains(t, err, "500")
}

func numbered(format string, count int) string {
	var out strings.Builder
	for n := range count {
		fmt.Fprintf(&out, format, n+1)
	}
	return out.String()
}

// An invalid list does not count as empty, and the next host is asked.
func TestInvalidLists(t *testing.T) {
	t.Parallel()
	answers := map[string]struct{ body, want string }{
		"empty":         {`{"name":"app","tags":[]}`, "is empty"},
		"null":          {`{"name":"app","tags":null}`, "is empty"},
		"lacks the tag": {`{"name":"app","tags":["t1"]}`, "has 1 tags, but not t0, which exists"},
		"torn JSON":     {`{"tags":["t0"`, "unexpected EOF"},
		"a page":        {`<html></html>`, "answers with a web page"},
	}
	for title, a := range answers {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			upstream, mirror := newFake(t), newFake(t)
			mirror.answer(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(a.body)) })
			upstream.answer(pages(2, relative))
			hosts := fmt.Sprintf("server = %q\n[host.%q]\n", upstream.URL, mirror.URL)
			r, _ := newRegistry(t, certsD(t, upstream.host(), hosts))
			names, err := r.TagsHaving(t.Context(), upstream.repository(), []string{"t0"})
			require.NoError(t, err)
			assert.Equal(t, []string{"t0", "t1"}, names)

			upstream.answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) })
			_, err = r.TagsHaving(t.Context(), upstream.repository(), []string{"t0"})
			require.Error(t, err)
			assert.ErrorContains(t, err, "405")
			if a.want != "is empty" { // with a known tag, an empty list lacks it
				assert.ErrorContains(t, err, a.want)
			}
			_, err = r.Tags(t.Context(), upstream.repository())
			if a.want == "is empty" {
				assert.ErrorContains(t, err, a.want)
			}
		})
	}
}

// The tags in incomplete lists exist; others may exist as well.
func TestTagsOfIncompleteLists(t *testing.T) {
	t.Parallel()
	upstream, mirror := newFake(t), newFake(t)
	upstream.answer(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"tags":["t3","t2"]}`)) })
	mirror.answer(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"tags":["t1","t2"]}`)) })
	hosts := fmt.Sprintf("server = %q\n[host.%q]\n", upstream.URL, mirror.URL)
	r, _ := newRegistry(t, certsD(t, upstream.host(), hosts))
	names, err := r.TagsHaving(t.Context(), upstream.repository(), []string{"t0"})
	require.ErrorContains(t, err, "not t0, which exists")
	assert.Equal(t, []string{"t1", "t2", "t3"}, names)
}

// A missing or refused later page says nothing about the repository.
func TestMissingLaterPage(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 403, 404, 405, 410, 500} {
		f := newFake(t)
		f.answer(func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Query().Get("last") != "" {
				w.WriteHeader(status)
				return
			}
			pages(2, relative)(w, req)
		})
		r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
		names, err := r.Tags(t.Context(), f.repository())
		var source *release.SourceError
		require.ErrorAs(t, err, &source)
		assert.Equal(t, status, source.Status)
		assert.NotErrorIs(t, err, release.ErrNotFound)
		assert.Equal(t, status <= 405, errors.Is(err, release.ErrTornList), status)
		assert.ErrorContains(t, err, strconv.Itoa(status))
		assert.Empty(t, names)
	}
}

// A link is relative to the requested page, and to the target of a redirect; a client continues at the requested URL,
// and is redirected again.
func TestPagesBehindARedirect(t *testing.T) {
	t.Parallel()
	for _, link := range []string{
		`</moved/v2/app/tags/list?last=%d>; rel="next"`, `<list?last=%d>; rel="next"`, `<?last=%d>; rel="next"`,
		`<http://inner.example.com/moved/v2/app/tags/list?last=%d>; rel="next"`, `</moved/tags?repo=app&last=%d>; rel="next"`,
	} {
		f := newFake(t)
		f.answer(func(w http.ResponseWriter, req *http.Request) {
			if !strings.HasPrefix(req.URL.Path, "/moved") {
				http.Redirect(w, req, "/moved"+req.URL.RequestURI(), http.StatusTemporaryRedirect)
				return
			}
			pages(3, func(_ *http.Request, next int) string { return fmt.Sprintf(link, next) })(w, req)
		})
		r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
		names, err := r.Tags(t.Context(), f.repository())
		require.NoError(t, err, link)
		assert.Equal(t, []string{"t0", "t1", "t2"}, names, link)
	}
}
