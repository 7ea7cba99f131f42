// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/catalog/store"
)

// answer is what a registry of these tests does with a path and query.
type answer func(w http.ResponseWriter, r *http.Request)

// newClient returns a client, and the repository of a registry that answers so. Anything else is 404.
func newClient(t *testing.T, answers map[string]answer) (*store.Client, string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		do, ok := answers[r.Method+" "+r.URL.RequestURI()]
		if !ok {
			do, ok = answers[r.Method+" "+r.URL.Path]
		}
		switch {
		case r.URL.Path == "/v2/":
		case ok:
			do(w, r)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	return clientOf(t, nil), strings.TrimPrefix(server.URL, "http://") + "/a/b"
}

func clientOf(t *testing.T, transport http.RoundTripper) *store.Client {
	t.Helper()
	c, err := store.New(store.Options{UserAgent: "test", Keychain: authn.NewMultiKeychain(), Transport: transport, PlainHTTP: true})
	require.NoError(t, err)
	return c
}

func says(text string, header ...string) answer {
	return func(w http.ResponseWriter, _ *http.Request) {
		for n := 0; n < len(header); n += 2 {
			w.Header().Add(header[n], header[n+1])
		}
		_, _ = io.WriteString(w, text)
	}
}

func status(code int) answer {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// Docker-Content-Digest is optional, and so is HEAD in practice.
func TestDigestOfATag(t *testing.T) {
	t.Parallel()
	const body = `{"schemaVersion":2}`
	want := digest.FromString(body)
	other := digest.FromString("other").String()
	for name, test := range map[string]struct {
		head, get answer
		want      string // error
	}{
		"header":                     {says("", "Docker-Content-Digest", want.String()), nil, ""},
		"no header":                  {says(""), says(body), ""},
		"header without a digest":    {says("", "Docker-Content-Digest", "1"), says(body), ""},
		"header of another kind":     {says("", "Docker-Content-Digest", digest.SHA512.FromString(body).String()), says(body), ""},
		"no HEAD":                    {status(http.StatusMethodNotAllowed), says(body), ""},
		"HEAD not implemented":       {status(http.StatusNotImplemented), says(body), ""},
		"gone between the two":       {says(""), status(http.StatusNotFound), release.ErrNotFound.Error()},
		"no such tag":                {status(http.StatusNotFound), says(body), release.ErrNotFound.Error()},
		"a digest that is not right": {says(""), says(body, "Docker-Content-Digest", other), "want " + other},
	} {
		c, repository := newClient(t, map[string]answer{"HEAD /v2/a/b/manifests/1": test.head, "GET /v2/a/b/manifests/1": test.get})
		got, err := c.Head(t.Context(), repository, "1")
		if test.want != "" {
			require.ErrorContains(t, err, test.want, name)
			continue
		}
		require.NoError(t, err, name)
		assert.Equal(t, want, got, name)
	}
}

// What pages are and how one leads to the next, internal/registry tests for both readers of package distspec.
func TestTagListsAsRegistriesSendThem(t *testing.T) {
	t.Parallel()
	const first, list = "GET /v2/a/b/tags/list?n=1000", "GET /v2/a/b/tags/list"
	const second = "GET /v2/a/b/tags/list?last=1&n=1000"
	page := func(tags string, header ...string) answer { return says(`{"name":"a/b","tags":[`+tags+`]}`, header...) }
	next := func(target string) answer { return page(`"1"`, "Link", "<"+target+`>; rel="next"`) }
	for name, test := range map[string]struct {
		answers map[string]answer
		want    []string
		err     string
	}{
		"one page":               {map[string]answer{first: page(`"1","2","1","not a tag"`)}, []string{"1", "2"}, ""},
		"no repository":          {map[string]answer{}, nil, ""},
		"no tags":                {map[string]answer{first: says(`{"name":"a/b","tags":null}`)}, nil, ""},
		"page 2 is not there":    {map[string]answer{first: next("/v2/a/b/tags/list?last=1&n=1000")}, nil, "incomplete list: page 2: 404"},
		"page 2 is refused":      {map[string]answer{first: next("/v2/a/b/tags/list?last=1&n=1000"), second: status(http.StatusForbidden)}, nil, "403"},
		"size refused":           {map[string]answer{first: status(http.StatusBadRequest), list: page(`"1"`)}, []string{"1"}, ""},
		"not a list":             {map[string]answer{first: says(`<html>login</html>`)}, nil, "invalid character"},
		"an object, and no list": {map[string]answer{first: says(`{}`)}, nil, "no tag list"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, repository := newClient(t, test.answers)
			got, err := c.Tags(t.Context(), repository)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
}

// endless sends a beginning, and then without end. It counts the bytes.
func endless(begin, more string, sent *atomic.Int64) answer {
	return func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, begin)
		more := []byte(strings.Repeat(more, 4096))
		for {
			n, err := w.Write(more)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	}
}

// What a registry sends is bounded, whatever it is asked for.
func TestAnswersWithoutEnd(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	c, repository := newClient(t, map[string]answer{
		"GET /v2/a/b/manifests/1":                             endless(`{"x":"`, "x", &sent),
		"GET /v2/a/b/blobs/" + digest.FromString("").String(): endless("", "x", &sent),
		"GET /v2/a/b/tags/list":                               endless(`{"name":"a","child":[""`, `,""`, &sent),
		"HEAD /v2/a/b/manifests/2":                            says(""),
		"GET /v2/a/b/manifests/2":                             endless(``, " ", &sent),
	})
	_, _, err := c.Manifest(t.Context(), repository, "1")
	require.ErrorIs(t, err, outside.ErrTooLarge)
	_, err = c.Blob(t.Context(), repository, ocispec.Descriptor{Digest: digest.FromString(""), Size: 100})
	require.ErrorIs(t, err, outside.ErrTooLarge)
	_, err = c.Blob(t.Context(), repository, ocispec.Descriptor{Digest: digest.FromString(""), Size: 1 << 40})
	require.ErrorIs(t, err, outside.ErrTooLarge)
	_, err = c.Head(t.Context(), repository, "2")
	require.ErrorIs(t, err, outside.ErrTooLarge)
	_, err = c.Tags(t.Context(), repository)
	require.ErrorIs(t, err, outside.ErrTooLarge)
	assert.Less(t, sent.Load(), int64(128<<20))
}

// A list that never ends, page after page, ends nevertheless.
func TestTagListOfAllPages(t *testing.T) {
	t.Parallel()
	pages := 0
	c, repository := newClient(t, map[string]answer{"GET /v2/a/b/tags/list": func(w http.ResponseWriter, _ *http.Request) {
		pages++
		w.Header().Set("Link", fmt.Sprintf("</v2/a/b/tags/list?last=%d>; rel=next", pages))
		fmt.Fprintf(w, `{"tags":["%d"]}`, pages)
	}})
	_, err := c.Tags(t.Context(), repository)
	require.ErrorIs(t, err, outside.ErrTooLarge)
	assert.Less(t, pages, 2000)
}

// A redirect's query holds a token. It is in no error, and no redirect leads to where the login's machine may go only.
func TestRedirects(t *testing.T) {
	t.Parallel()
	leads := func(to string) answer {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusTemporaryRedirect) }
	}
	c, repository := newClient(t, map[string]answer{
		"GET /v2/a/b/manifests/1":    leads("http://169.254.169.254/latest?sig=hunter2&x=abc"),
		"GET /v2/a/b/manifests/2":    leads("/v2/a/b/manifests/2?sig=hunter2"),
		"GET /v2/a/b/manifests/3":    leads("ftp://cdn.example.com/x?sig=hunter2"),
		"GET /v2/a/b/manifests/4":    leads("/elsewhere?sig=hunter2"),
		"GET /elsewhere?sig=hunter2": says(`{}`),
		"GET /v2/a/b/manifests/5":    leads("/broken?sig=hunter2"),
		"GET /broken?sig=hunter2":    status(http.StatusForbidden),
	})
	for tag, want := range map[string]string{
		"1": "to the private address 169.254.169.254", "2": "more than", "3": "unsupported protocol", "5": "403",
	} {
		_, _, err := c.Manifest(t.Context(), repository, tag)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "hunter2")
	}
	_, body, err := c.Manifest(t.Context(), repository, "4")
	require.NoError(t, err)
	assert.Equal(t, `{}`, string(body))
}

// roundTrip is a registry without a network.
type roundTrip func(r *http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answered(r *http.Request, status int, body io.ReadCloser, header ...string) *http.Response {
	h := http.Header{}
	for n := 0; n < len(header); n += 2 {
		h.Add(header[n], header[n+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: body, Request: r, ProtoMajor: 1, ProtoMinor: 1}
}

// silent is a body of which no byte comes before the request ends.
type silent struct{ ctx context.Context }

func (s silent) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}
func (silent) Close() error { return nil }

// dripping is a body of which a byte comes each second.
type dripping struct{ ctx context.Context }

func (d dripping) Read(p []byte) (int, error) {
	select {
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	case <-time.After(time.Second):
	}
	return copy(p, " "), nil
}
func (dripping) Close() error { return nil }

// A registry that says nothing, or a byte now and then, ends a request with an error.
func TestSilentRegistries(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer roundTrip
		within time.Duration
	}{
		"no answer": {func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}, 3 * time.Minute},
		"no answer to a login": {func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/v2/" {
				return answered(r, http.StatusUnauthorized, http.NoBody, "WWW-Authenticate", `Bearer realm="https://auth.example.com/token"`), nil
			}
			<-r.Context().Done()
			return nil, r.Context().Err()
		}, 3 * time.Minute},
		"no body": {func(r *http.Request) (*http.Response, error) {
			return answered(r, http.StatusOK, silent{r.Context()}), nil
		}, 3 * time.Minute},
		"a byte now and then": {func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/v2/" {
				return answered(r, http.StatusOK, http.NoBody), nil
			}
			return answered(r, http.StatusOK, dripping{r.Context()}), nil
		}, 11 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := clientOf(t, test.answer)
				for n, ask := range []func() error{
					func() error { _, _, err := c.Manifest(t.Context(), "registry.example.com/a", "1"); return err },
					func() error { _, err := c.Tags(t.Context(), "registry.example.com/a"); return err },
					func() error { return c.PutManifest(t.Context(), "registry.example.com/a", "1", []byte("{}")) },
				} {
					begun := time.Now()
					err := ask()
					if n < 2 || err != nil { // what is put needs no body
						require.ErrorContains(t, err, "within")
					}
					assert.Less(t, time.Since(begun), test.within)
				}
			})
		})
	}
}

// Requests are repeated, and a registry that says how long to wait is waited for.
func TestRequestsAreRepeated(t *testing.T) {
	t.Parallel()
	const body = `{"schemaVersion":2}`
	for name, test := range map[string]struct {
		status int
		header []string
		times  int64 // that it fails
		least  time.Duration
		fails  bool
	}{
		"503 once":                 {http.StatusServiceUnavailable, nil, 1, 0, false},
		"500 six times":            {http.StatusInternalServerError, nil, 6, 0, false},
		"500 always":               {http.StatusInternalServerError, nil, 1000, 0, true},
		"429 with seconds":         {http.StatusTooManyRequests, []string{"Retry-After", "20"}, 2, 40 * time.Second, false},
		"429 with a time":          {http.StatusTooManyRequests, []string{"Retry-After", "Sat, 01 Jan 2000 00:00:10 GMT"}, 1, 10 * time.Second, false},
		"429 with a day":           {http.StatusTooManyRequests, []string{"Retry-After", "86400"}, 1, 0, true},
		"403":                      {http.StatusForbidden, nil, 1, 0, true},
		"501 is not passing":       {http.StatusNotImplemented, nil, 1, 0, true},
		"503 with what is no time": {http.StatusServiceUnavailable, []string{"Retry-After", "soon"}, 1, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int64
				c := clientOf(t, roundTrip(func(r *http.Request) (*http.Response, error) {
					if r.URL.Path == "/v2/" {
						return answered(r, http.StatusOK, http.NoBody), nil
					}
					if asked.Add(1) <= test.times {
						return answered(r, test.status, http.NoBody, test.header...), nil
					}
					return answered(r, http.StatusOK, io.NopCloser(strings.NewReader(body))), nil
				}))
				begun := time.Now()
				_, got, err := c.Manifest(t.Context(), "registry.example.com/a", "1")
				assert.GreaterOrEqual(t, time.Since(begun), test.least)
				assert.Less(t, time.Since(begun), 2*time.Minute)
				if test.fails {
					require.Error(t, err)
					assert.LessOrEqual(t, asked.Load(), int64(store.MaxAttempts))
					assert.Equal(t, test.status, store.Status(err))
					return
				}
				require.NoError(t, err)
				assert.Equal(t, body, string(got))
			})
		})
	}
}

// A list that broke off is asked for again, and is no list.
func TestTagListThatBreaksOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		text := `{"name":"a","tags":["1"`
		c := clientOf(t, roundTrip(func(r *http.Request) (*http.Response, error) {
			return answered(r, http.StatusOK, io.NopCloser(strings.NewReader(text))), nil
		}))
		_, err := c.Tags(t.Context(), "registry.example.com/a")
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		text += "]}"
		got, err := c.Tags(t.Context(), "registry.example.com/a")
		require.NoError(t, err)
		assert.Equal(t, []string{"1"}, got)
	})
}

// A CI job has its login in a variable, and needs no file.
func TestLoginOfTheEnvironment(t *testing.T) {
	user := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, _, _ = r.BasicAuth(); user == "" {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(`{"tags":["1"]}`))
	}))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	tags := func(config string) error {
		t.Setenv("DOCKER_AUTH_CONFIG", config)
		c, err := store.New(store.Options{UserAgent: "test"})
		require.NoError(t, err)
		_, err = c.Tags(t.Context(), host+"/a/b")
		return err
	}
	t.Setenv("HOME", t.TempDir())
	require.NoError(t, tags(`{"auths":{"`+host+`":{"auth":"Y2k6czNjcmV0"}}}`))
	assert.Equal(t, "ci", user)
	require.NoError(t, tags(`{"auths":{"`+host+`":{"auth":"Y2k6czNjcmV0"},"`+host+`/a/b":{"username":"b","password":"x"}}}`))
	assert.Equal(t, "b", user, "the repository's own login comes first")
	require.ErrorContains(t, tags(`{"auths":{}}`), "401")
	require.ErrorContains(t, tags(`not JSON`), "DOCKER_AUTH_CONFIG: ")
}
