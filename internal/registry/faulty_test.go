// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// raw answers HEAD and GET with the given bytes, and closes the connection.
func raw(head, get string) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		answer := get
		if req.Method == http.MethodHead {
			answer = head
		}
		_, _ = io.WriteString(conn, answer)
	}
}

func gzipped(t *testing.T, body []byte) string {
	t.Helper()
	packed := new(bytes.Buffer)
	w := gzip.NewWriter(packed)
	_, err := w.Write(body)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return packed.String()
}

// with returns an answer with status 200, a Content-Type, a body, and its length.
func with(kind, body string, headers ...string) string {
	headers = append(headers, "Connection: close", "Content-Type: "+kind, "Content-Length: "+strconv.Itoa(len(body)))
	return "HTTP/1.1 200 OK\r\n" + strings.Join(headers, "\r\n") + "\r\n\r\n" + body
}

// Answers of a faulty host to a poll. None counts as an answer, and the next host is asked.
func TestFaultyHosts(t *testing.T) {
	t.Parallel()
	const manifest = `{"schemaVersion":2,"config":{"mediaType":"` + images.MediaTypeDockerSchema2Config + `","digest":"` + testDigest + `","size":1},"layers":[]}`
	const kind = images.MediaTypeDockerSchema2Manifest
	const empty = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\n" // no digest with HEAD
	const html = "<html>Please log in</html>"
	said := "Docker-Content-Digest: "
	good := digest.FromString(manifest).String()
	hosts := []struct {
		title, head, get string
		want             string // error
		status           int
	}{
		{"good", with(kind, "", said+good), "", "", 0},
		{"HEAD without digest", empty, with(kind, manifest), "", 0},
		{"HEAD is not allowed", "HTTP/1.1 405 Not Allowed\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", with(kind, manifest, said+good), "", 0},
		{"304 to a HEAD without condition", "HTTP/1.1 304 Not Modified\r\n" + said + good + "\r\n\r\n", "", "304 Not Modified", 304},
		{"206", "HTTP/1.1 206 Partial Content\r\n" + said + good + "\r\nContent-Length: 5\r\n\r\n", "", "206 Partial Content", 206},
		{"302 to nowhere", "HTTP/1.1 302 Found\r\n" + said + good + "\r\nContent-Length: 0\r\n\r\n", "", "302 Found", 302},
		{"418", "HTTP/1.1 418 Short\r\nContent-Length: 0\r\n\r\n", "", "418 I'm a teapot", 418},
		{"a status of its own", "HTTP/1.1 599 " + secret + "\r\nContent-Length: 0\r\n\r\n", "", "599", 599},
		{"no HTTP", "SSH-2.0-OpenSSH_9.6\r\n", "", "malformed HTTP", 0},
		{"nothing", "", "", "EOF", 0},
		{"half a header", "HTTP/1.1 200 OK\r\n" + said, "", "unexpected EOF", 0},
		{"a long line", pad(60000) + "\r\n\r\n", "", "malformed HTTP response \"ppp", 0},
		{"a cookie without a name", "HTTP/1.1 200 OK\r\n: " + secret + "\r\n\r\n", "", "malformed header", 0},
		{"header without a colon", "HTTP/1.1 200 OK\r\nDocker-Content-Digest\r\n\r\n", "", "malformed header", 0},
		{"two lengths", "HTTP/1.1 200 OK\r\n" + said + good + "\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "", "Content-Length", 0},
		{"endless 1xx", strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: <"+pad(1000)+">\r\n\r\n", 1000), "", "response headers exceeded 65536 bytes", 0},
		{"another digest", empty, with(kind, manifest, said+testDigest), "content has digest", 0},
		{"md5", with(kind, "", said+"md5:900150983cd24fb0d6963f7d28e17f72"), "", "unsupported digest algorithm", 0},
		{"digest in upper case", with(kind, "", said+strings.ToUpper(good)), "", "digest", 0},
		{"two digests", with(kind, "", said+good+","+good), "", "digest", 0},
		{"HTML", with("text/html", ""), with("text/html", html), "answers with a web page (text/html): a login page, or not a registry", 0},
		{"HTML that says JSON", empty, with(kind, html), "invalid character", 0},
		{"empty", empty, with(kind, ""), "unexpected end of JSON", 0},
		{"no type", empty, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "content-type", 0},
		{"plain JSON", empty, with("application/json", manifest), "not an image", 0},
		{"schema 1", empty, with("application/vnd.docker.distribution.manifest.v1+prettyjws", `{"schemaVersion":1}`), "not an image", 0},
		{"schema 1 in disguise", empty, with(kind, `{"schemaVersion":1,"fsLayers":[]}`), `has "fsLayers"`, 0},
		{"torn by length", empty, "HTTP/1.1 200 OK\r\nContent-Type: " + kind + "\r\nContent-Length: 100000\r\n\r\n" + manifest, "unexpected EOF", 0},
		{"torn chunk", empty, "HTTP/1.1 200 OK\r\nContent-Type: " + kind + "\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n" + manifest, "unexpected EOF", 0},
		{
			"no last chunk", empty,
			fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", kind, len(manifest), manifest),
			"unexpected EOF", 0,
		},
		{"broken chunk", empty, "HTTP/1.1 200 OK\r\nContent-Type: " + kind + "\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "invalid byte in chunk length", 0},
		{"gzip", empty, with(kind, gzipped(t, []byte(manifest)), "Content-Encoding: gzip", said+good), "", 0},
		{"gzip, and the digest is of the packed", empty, with(kind, gzipped(t, []byte(manifest)), "Content-Encoding: gzip", said+digest.FromString(gzipped(t, []byte(manifest))).String()), "content has digest", 0},
		{"gzip, not said", empty, with(kind, gzipped(t, []byte(manifest))), "invalid character", 0},
		{"gzip, twice", empty, with(kind, gzipped(t, []byte(gzipped(t, []byte(manifest)))), "Content-Encoding: gzip"), "invalid character", 0},
		{"gzip, torn", empty, with(kind, gzipped(t, []byte(manifest))[:40], "Content-Encoding: gzip"), "unexpected EOF", 0},
		{"gzip, none", empty, with(kind, manifest, "Content-Encoding: gzip"), "gzip: invalid header", 0},
		{"gzip, a bomb", empty, with(kind, gzipped(t, make([]byte, 2*maxManifest)), "Content-Encoding: gzip"), "too large: over 4194304 bytes", 0},
	}
	for _, h := range hosts {
		t.Run(h.title, func(t *testing.T) {
			t.Parallel()
			faulty, sound := newFake(t), newFake(t)
			faulty.answer(raw(h.head, h.get))
			sound.answer(raw(with(kind, "", said+testDigest), ""))
			alone, _ := newRegistry(t, certsD(t, faulty.host(), plainHTTP(faulty.host())))
			got, err := alone.Resolve(t.Context(), release.Reference{Repository: faulty.repository(), Tag: "1"})
			both, _ := newRegistry(t, certsD(t, sound.host(), plainHTTP(sound.host())+"[host.\""+faulty.URL+"\"]\n"))
			next, errBoth := both.Resolve(t.Context(), release.Reference{Repository: sound.repository(), Tag: "1"})
			if h.want == "" {
				require.NoError(t, errBoth)
				require.NoError(t, err)
				assert.Equal(t, good, got.Digest.String())
				assert.Equal(t, release.Resolved{Digest: got.Digest, Host: faulty.host(), Mirror: true, Insecure: true}, next)
				return
			}
			source := sourceError(t, err)
			if source.Answered {
				assert.Equal(t, faulty.host(), sourceError(t, errBoth).Host, "where kubelet's pull ends")
			} else {
				require.NoError(t, errBoth)
				if next.Skipped != nil {
					assert.Equal(t, faulty.host(), next.Skipped.Host)
					next.Skipped = nil
				}
				assert.Equal(t, release.Resolved{Digest: testDigest, Host: sound.host(), Insecure: true}, next)
			}
			assert.Equal(t, endsSearch(h.head), source.Answered, "containerd asks no other host after it")
			require.ErrorContains(t, err, h.want)
			require.NotErrorIs(t, err, release.ErrNotFound)
			assert.Zero(t, got)
			assert.Equal(t, h.status, source.Status)
			assert.NotContains(t, err.Error(), "\n")
			assert.Less(t, len(err.Error()), 600, "a person will read it")
		})
	}
}

// endsSearch reports whether containerd asks no other host after an answer to HEAD.
func endsSearch(head string) bool {
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(head)), &http.Request{Method: http.MethodHead})
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode >= http.StatusOK && resp.StatusCode < http.StatusBadRequest
}

// A digest is fetched with the host's type and size, and verified against the received bytes.
func TestFaultyDigests(t *testing.T) {
	t.Parallel()
	said := "Docker-Content-Digest: "
	answers := []struct {
		title  string
		answer func(manifest string) string
		want   string
	}{
		{"good", func(m string) string { return with(images.MediaTypeDockerSchema2Manifest, m) }, ""},
		{"header lies, content is right", func(m string) string { return with(images.MediaTypeDockerSchema2Manifest, m, said+testDigest) }, ""},
		{"content lies, header is right", func(m string) string {
			return with(images.MediaTypeDockerSchema2Manifest, m+" ", said+digest.FromString(m).String())
		}, "content has digest"},
		{"cut", func(m string) string { return with(images.MediaTypeDockerSchema2Manifest, m[:len(m)-1]) }, "content has digest"},
		{"torn", func(m string) string {
			return strings.Replace(with(images.MediaTypeDockerSchema2Manifest, m), "Content-Length: ", "Content-Length: 1", 1)
		}, "unexpected EOF"},
		{"another type", func(m string) string { return with(ocispec.MediaTypeImageManifest, m) }, "came as"},
		{"304", func(string) string { return "HTTP/1.1 304 Not Modified\r\n\r\n" }, "304 Not Modified"},
	}
	for _, a := range answers {
		t.Run(a.title, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			desc := f.image(t, "linux", "amd64", nil)
			answer := a.answer(string(f.content[desc.Digest.String()].body))
			f.answer(func(w http.ResponseWriter, req *http.Request) {
				if strings.HasSuffix(req.URL.Path, desc.Digest.String()) {
					raw("", answer)(w, req)
				}
			})
			r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
			_, err := r.Describe(t.Context(), f.repository(), desc.Digest)
			if a.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, a.want)
		})
	}
}
