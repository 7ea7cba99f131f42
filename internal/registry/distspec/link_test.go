// SPDX-License-Identifier: Apache-2.0

package distspec

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func mustURL(t testing.TB, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	require.NoError(t, err)
	return u
}

// A client continues at the URL that it requested, whatever address the registry believes it has.
func TestNextPageIsAtTheRequestedURL(t *testing.T) {
	t.Parallel()
	const page = "https://m.example.com:5000/artifactory/api/docker/remote/v2/repo/tags/list?n=1000"
	const own = "https://m.example.com:5000/artifactory/api/docker/remote/v2/repo/tags/list?"
	links := map[string]string{
		"/v2/repo/tags/list?last=b&n=1000":                               own + "last=b&n=1000", // Artifactory
		"/artifactory/api/docker/remote/v2/repo/tags/list?last=b&n=1000": own + "last=b&n=1000",
		"?last=b&n=1000":                                                own + "last=b&n=1000",
		"list?last=b":                                                   own + "last=b",
		"./list?last=b":                                                 own + "last=b",
		"v2/repo/tags/list?last=b":                                      own + "last=b",
		"repo/tags/list?last=b":                                         own + "last=b",
		"/v2/other/name/tags/list?last=b":                               own + "last=b",
		"/v2/repo/tags/list/?last=b":                                    own + "last=b&n=1000",
		"/v2/repo/tags/list?next_page=x%3D&n=50":                        own + "next_page=x%3D&n=50", // Quay
		"http://m.example.com:5000/v2/repo/tags/list?last=b":            own + "last=b",
		"http://m.example.com/v2/repo/tags/list?last=b":                 own + "last=b",
		"https://m.example.com/v2/repo/tags/list?last=b":                own + "last=b",
		"https://m.example.com:443/v2/repo/tags/list?last=b":            own + "last=b",
		"http://localhost:8081/v2/repo/tags/list?last=b":                own + "last=b",
		"http://10.0.0.7:8081/artifactory/v2/repo/tags/list?last=b":     own + "last=b",
		"https://registry-1.docker.io/v2/library/repo/tags/list?last=b": own + "last=b",
		"//inner/v2/repo/tags/list?last=b":                              own + "last=b",
		"/api/tags?repo=x&last=b&n=5":                                   own + "last=b&n=5",
		"https://inner.example.com/api/tags?last=b":                     own + "last=b&n=1000",
		"m.example.com:5000/v2/repo/tags/list?last=b":                   own + "last=b&n=1000", // no scheme
		"/v2/repo/tags/list?last=a%2Bb#x":                               own + "last=a%2Bb",
		"/v2/repo/_next/7":                                              "https://m.example.com:5000/v2/repo/_next/7",
		"http://m.example.com/v2/repo/_next/7":                          "https://m.example.com:5000/v2/repo/_next/7",
		"https://evil.example.org/v2/repo/_next/7":                      "",
		"https://m.example.com.evil.org:5000/x":                         "",
		"https://m.example.com:5001/x":                                  "",
		"file:///etc/passwd":                                            "",
		"ftp://m.example.com:5000/v2/repo/tags/list?last=b":             own + "last=b",
		"https://u:p@m.example.com:5000/v2/repo/tags/list?last=b":       "",
		"https://m.example.com:5000@evil.org/v2/repo/tags/list?last=b":  "",
		"http:v2/repo/tags/list?last=b":                                 own + "last=b&n=1000",
		"mailto:x":                                                      "",
	}
	for link, want := range links {
		next, err := NextPage(mustURL(t, page), []string{"<" + link + `>; rel="next"`})
		if want == "" {
			require.ErrorIs(t, err, ErrForeignLink, link)
			continue
		}
		require.NoError(t, err, link)
		assert.Equal(t, want, next.String(), link)
	}
	_, err := NextPage(mustURL(t, page), []string{"<http://%zz/>; rel=next"})
	require.ErrorIs(t, err, ErrLink)
}

func TestNextLink(t *testing.T) {
	t.Parallel()
	headers := map[string]string{
		`</a>; rel="next"`:                          "/a",
		`</a>; REL=Next`:                            "/a",
		`</a>;rel=next`:                             "/a",
		`</a> ; rel = "next"`:                       "/a",
		`</a>; rel='next'`:                          "/a",
		`</a>; rel="last next"`:                     "/a",
		`</a>; rel=prev, </b>; rel=next`:            "/b",
		`</a>; rel=prev; title=x,</b>;rel="next"`:   "/b",
		`</a>; title="b,</c>;rel=next,"; rel=prev`:  "",
		`</a>; title="\",</c>;rel=next,"; rel=prev`: "",
		`</a>; title="b, c"; rel=next`:              "/a",
		`</a>; rel="nextish"`:                       "",
		`</a>`:                                      "",
		`</a?last=b>`:                               "/a?last=b",
		`</a?n=1&last=b>`:                           "/a?n=1&last=b",
		`</a?last=b>; rel=prev`:                     "",
		`</a>; rel=next; rel=prev`:                  "/a",
		`</a>; rel="next`:                           "/a",
		`</a>; rel=, </b>; rel=next`:                "/b",
		`/a; rel=next`:                              "/a",
		`/a;rel="next"`:                             "/a",
		`</a; rel=next`:                             "/a",
		`</first>; rel=next, </second>; rel="next"`: "/first",
		`</a,b?last=c,d>; rel=next`:                 "/a,b?last=c,d",
		`</a; rel=prev, </b>; rel=next`:             "/b",
		``:                                          "", `,`: "", `;`: "", `<`: "", `>; rel`: "", `; rel=next;;`: "",
	}
	for header, want := range headers {
		got, ok := nextLink([]string{header})
		assert.Equal(t, want, got, header)
		if header != `; rel=next;;` {
			assert.Equal(t, want != "", ok, header)
		}
	}
	got, ok := nextLink([]string{`</a>; rel=prev`, `</b>; rel=next`})
	assert.True(t, ok)
	assert.Equal(t, "/b", got)
}

// Whatever a header contains, the request goes to the same host.
func FuzzLink(f *testing.F) {
	for _, seed := range []string{
		`</v2/app/tags/list?last=a&n=2>; rel="next"`, `<a>; rel=prev, <b>; rel="x next"`,
		`<//evil/x>; rel=next`, `<http://h.example.com:443/>; rel="next"; title="a\"b,<c>"`,
		`<`, `<a`, `<a>;`, `<https://u@h.example.com/>;rel=next`, `<http:opaque>;rel=next`, `<?#f>;rel=next`,
		`<https://evil/v2/app/tags/list?last=x>;rel=next`, `/a?last=x`,
	} {
		f.Add(seed)
	}
	page := &url.URL{Scheme: "https", Host: "h.example.com", Path: "/v2/app/tags/list", RawQuery: "n=1000"}
	f.Fuzz(func(t *testing.T, header string) {
		next, err := NextPage(page, []string{header})
		if err != nil || next == nil {
			return
		}
		again, err := url.Parse(next.String())
		require.NoError(t, err)
		assert.Equal(t, "https", again.Scheme)
		assert.Equal(t, "h.example.com", strings.ToLower(again.Hostname()))
		assert.Contains(t, []string{"", "443"}, again.Port())
		assert.Nil(t, again.User)
		assert.Empty(t, again.Fragment)
	})
}
