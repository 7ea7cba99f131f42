// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
)

// ask is one request to a prepared registry.
type ask func(r *guarded) error

func pad(n int) string { return strings.Repeat("p", n) }

// ofSize publishes a document padded to a size.
func ofSize(size int, publish func(padding string) ocispec.Descriptor) ocispec.Descriptor {
	return publish(pad(size - int(publish("").Size)))
}

func (f *fake) ofImage(t *testing.T, size int) ocispec.Descriptor {
	t.Helper()
	return ofSize(size, func(p string) ocispec.Descriptor {
		return f.image(t, "linux", "amd64", func(m map[string]any) { m["pad"] = p })
	})
}

func (f *fake) resolve(t *testing.T) ask {
	return func(r *guarded) error {
		_, err := r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
		return err
	}
}

func (f *fake) describe(t *testing.T, d digest.Digest) ask {
	return func(r *guarded) error {
		_, err := r.Describe(t.Context(), f.repository(), d)
		return err
	}
}

func (f *fake) list(t *testing.T, want int) ask {
	return func(r *guarded) error {
		names, err := r.Tags(t.Context(), f.repository())
		if err == nil {
			assert.Len(t, names, want)
		}
		return err
	}
}

// tagPage answers with one page of that size.
func tagPage(size int, chunked bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if !chunked {
			w.Header().Set("Content-Length", strconv.Itoa(size))
		}
		body := `{"tags":["1"]}`
		_, _ = w.Write([]byte(body + strings.Repeat(" ", size-len(body))))
	}
}

// tagPages answers with pages from body, which gets the page number from 0.
func tagPages(count int, body func(page int) string) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		page, _ := strconv.Atoi(req.URL.Query().Get("last"))
		if page+1 < count {
			w.Header().Set("Link", relative(req, page+1))
		}
		_, _ = io.WriteString(w, body(page))
	}
}

// tagsOf returns the tags in a range of numbers as JSON.
func tagsOf(from, to int) string {
	names := make([]string, 0, pageSize)
	for n := from; n < to; n++ {
		names = append(names, fmt.Sprintf("\"t%d\"", n))
	}
	return `{"tags":[` + strings.Join(names, ",") + `]}`
}

func noHead(w http.ResponseWriter, req *http.Request) {
	if req.Method == http.MethodHead {
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func leadsTo(f *fake) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, f.URL+req.URL.Path, http.StatusTemporaryRedirect)
	}
}

// wantsToken returns a host that gives anybody a token, and redirects who has it to another host.
func wantsToken(t *testing.T, to *fake) *fake {
	t.Helper()
	f := newFake(t)
	f.answer(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.URL.Path == "/token":
			_, _ = io.WriteString(w, `{"token":"anonymous-one"}`)
		case req.Header.Get("Authorization") == "":
			challenge(w, bearer(f.URL+"/token"))
		default:
			leadsTo(to)(w, req)
		}
	})
	return f
}

// Each limit of limits.go that a host can reach: below, at and above it.
func TestLimitsOfSizeAndCount(t *testing.T) {
	t.Parallel()
	limits := []struct {
		title string
		limit int
		// serve sets up a host that sends n of it.
		serve func(t *testing.T, f *fake, n int) ask
		want  string // the error above the limit
	}{
		{"manifest by digest", maxManifest, func(t *testing.T, f *fake, n int) ask {
			return f.describe(t, f.ofImage(t, n).Digest)
		}, "too large: over 4194304 bytes"},
		{"manifest by tag, no HEAD", maxManifest, func(t *testing.T, f *fake, n int) ask {
			f.tag("1", f.ofImage(t, n))
			f.answer(noHead)
			return f.resolve(t)
		}, "too large: over 4194304 bytes"},
		{"config", ocimanifest.MaxConfig, func(t *testing.T, f *fake, n int) ask {
			config := ofSize(n, func(p string) ocispec.Descriptor {
				return f.config(t, func(c map[string]any) { c["pad"] = p })
			})
			return f.describe(t, f.manifest(t, config, nil).Digest)
		}, "config: too large: 4194305 bytes"},
		{"tag page", maxTagPage, func(t *testing.T, f *fake, n int) ask {
			f.answer(tagPage(n, false))
			return f.list(t, 1)
		}, "too large: over 33554432 bytes"},
		{"tag page, chunked", maxTagPage, func(t *testing.T, f *fake, n int) ask {
			f.answer(tagPage(n, true))
			return f.list(t, 1)
		}, "too large: over 33554432 bytes"},
		{"pages", maxPages, func(t *testing.T, f *fake, n int) ask {
			f.answer(tagPages(n, func(page int) string { return tagsOf(page, page+1) }))
			return f.list(t, n)
		}, "too large: over 200 pages"},
		{"pages without tags", maxPages, func(t *testing.T, f *fake, n int) ask {
			f.answer(tagPages(n, func(int) string { return `{"tags":null}` }))
			return f.list(t, 0)
		}, "too large: over 200 pages"},
		{"tags", maxTags, func(t *testing.T, f *fake, n int) ask {
			const each = 10 * pageSize
			f.answer(tagPages((n+each-1)/each, func(page int) string { return tagsOf(page*each, min((page+1)*each, n)) }))
			return f.list(t, n)
		}, "tag list: too large: over 100000 tags"},
		{"bytes of all pages", maxTagList, func(t *testing.T, f *fake, n int) ask {
			const count = 20
			f.answer(tagPages(count, func(page int) string {
				size := n / count
				if page == 0 {
					size += n % count
				}
				body := tagsOf(page, page+1)
				return body + strings.Repeat(" ", size-len(body))
			}))
			return f.list(t, count)
		}, "tag list: too large: over 67108864 bytes"},
		{"token", maxToken, func(t *testing.T, f *fake, n int) ask {
			f.tag("1", f.image(t, "linux", "amd64", nil))
			frame := `{"token":"anonymous-1","pad":""}`
			newTokenServer(t, f).set(0, 1, frame[:len(frame)-2]+pad(n-len(frame))+`"}`)
			return f.resolve(t)
		}, "too large: over 65536 bytes"},
		{"header, from the status line to the empty line", maxHeader, func(t *testing.T, f *fake, n int) ask {
			f.answer(func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					return
				}
				defer func() { _ = conn.Close() }()
				head := "HTTP/1.1 200 OK\r\n" + digestHeader + ": " + testDigest + "\r\nPad: "
				_, _ = io.WriteString(conn, head+pad(n-len(head)-4)+"\r\n\r\n")
			})
			return f.resolve(t)
		}, "response headers exceeded 65536 bytes"},
		{"redirects", maxRedirects, func(t *testing.T, f *fake, n int) ask {
			f.tag("1"+strings.Repeat("x", n), f.image(t, "linux", "amd64", nil))
			f.answer(func(w http.ResponseWriter, req *http.Request) {
				if strings.Count(req.URL.Path, "x") < n {
					http.Redirect(w, req, req.URL.Path+"x", http.StatusFound)
				}
			})
			return f.resolve(t)
		}, "redirected more than 9 times"},
		{"hosts that want a token", maxChallenges, func(t *testing.T, f *fake, n int) ask {
			last := newFake(t)
			last.tag("1", last.image(t, "linux", "amd64", nil))
			to := last
			for range n {
				to = wantsToken(t, to)
			}
			f.answer(leadsTo(to))
			return f.resolve(t)
		}, "401 Unauthorized"},
	}
	for _, l := range limits {
		for _, n := range []int{l.limit - 1, l.limit, l.limit + 1} {
			t.Run(fmt.Sprintf("%s %+d", l.title, n-l.limit), func(t *testing.T) {
				t.Parallel()
				f := newFake(t)
				ask := l.serve(t, f, n)
				r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
				err := ask(r)
				if n <= l.limit {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, l.want)
				assert.Equal(t, strings.Contains(l.want, "too large"), isTooLarge(err))
				if l.title == "config" {
					assert.NotContains(t, strings.Join(f.log(), "\n"), "/blobs/", "the size in the manifest is enough")
				}
			})
		}
	}
}

func isTooLarge(err error) bool { return strings.Contains(err.Error(), outside.ErrTooLarge.Error()) }

// Data that is cut at its limit, and not rejected.
func TestLimitsThatCut(t *testing.T) {
	t.Parallel()
	for _, off := range []int{-1, 0, 1} {
		f := newFake(t)
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		seconds := int(maxRetryAfter/time.Second) + off
		version := pad(ocimanifest.MaxVersion + off)
		config := f.config(t, func(c map[string]any) {
			c["config"] = map[string]any{"Labels": map[string]string{ocispec.AnnotationVersion: version}}
		})
		r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())), func(o *Options) { o.Now = func() time.Time { return now } })
		got, err := r.Describe(t.Context(), f.repository(), f.manifest(t, config, nil).Digest)
		require.NoError(t, err)
		assert.Equal(t, outside.Line(version, ocimanifest.MaxVersion), got.Version)

		for _, value := range []string{strconv.Itoa(seconds), now.Add(time.Duration(seconds) * time.Second).Format(http.TimeFormat)} {
			f.answer(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", value)
				w.WriteHeader(http.StatusServiceUnavailable)
			})
			var source *release.SourceError
			require.ErrorAs(t, f.resolve(t)(r), &source)
			assert.Equal(t, now.Add(min(time.Duration(seconds)*time.Second, maxRetryAfter)), source.RetryAt, value)
		}
	}
}

// A host's text is in the error, the status and the record: a number of four megabytes, which the JSON parser quotes
// completely, once filled all three.
func TestErrorsQuoteAtMostALine(t *testing.T) {
	t.Parallel()
	digits, escapes := strings.Repeat("1", maxManifest-100), strings.Repeat(`\u001b[2J\u202e`, 10_000)
	for name, body := range map[string]string{
		"a number":         `{"schemaVersion": ` + digits + `}`,
		"a number as text": `{"schemaVersion": 2, "mediaType": ` + digits + `}`,
		"an escape":        `{"schemaVersion": 2, "mediaType": "` + escapes + `"}`,
		"a digest":         `{"schemaVersion": 2, "config": {"digest": "` + escapes + `"}}`,
		"a size":           `{"schemaVersion": 2, "config": {"size": ` + digits + `}}`,
		"a key":            `{"schemaVersion": 2, "` + escapes + `": ` + digits + `, "config": ` + digits + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			desc := f.set(ocispec.MediaTypeImageManifest, []byte(body))
			config := f.set(ocispec.MediaTypeImageConfig, []byte(`{"config": `+digits[:1<<20]+`}`))
			r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
			_, err := r.Describe(t.Context(), f.repository(), desc.Digest)
			assertLine(t, err)
			_, err = r.Describe(t.Context(), f.repository(), f.manifest(t, config, nil).Digest)
			assertLine(t, err)
			f.answer(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"tags": [` + digits[:1<<19] + `]}`))
			})
			_, err = r.Tags(t.Context(), f.repository())
			assertLine(t, err)
			f.answer(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/"+digits[:1<<14])
				w.Header().Set(digestHeader, digits[:1<<14])
			})
			_, err = r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
			assertLine(t, err)
		})
	}
}

// assertLine asserts that an error is one printable line: of the repository, the host and a shortened cause.
func assertLine(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	text := err.Error()
	assert.Less(t, len(text), outside.MaxError+100)
	assert.Equal(t, text, outside.Line(text, len(text)))
}

// The outermost error of a host is shortened, whatever it wraps.
func TestErrorsOfAHostAreOneLine(t *testing.T) {
	t.Parallel()
	long := errors.New(strings.Repeat("x\n", 1<<10))
	for _, f := range []*release.SourceError{
		endpoint{}.failed(long), endpoint{}.failed(&transport.Refused{Status: http.StatusUnauthorized, Err: long}),
		endpoint{}.failed(fmt.Errorf("%w: %w", &transport.Held{Host: "elsewhere", Led: true}, long)),
	} {
		assert.Equal(t, outside.Line(f.Err.Error(), outside.MaxError), f.Err.Error())
	}
}
