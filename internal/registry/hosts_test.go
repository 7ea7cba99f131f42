// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// deadHost returns a host:port without a listener. It is reserved for the test: no other process gets it meanwhile, and
// only a process that requests it explicitly may listen on it.
func deadHost(t testing.TB) string {
	t.Helper()
	held, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, unix.Close(held)) })
	require.NoError(t, unix.SetsockoptInt(held, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	require.NoError(t, unix.Bind(held, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, err := unix.Getsockname(held)
	require.NoError(t, err)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*unix.SockaddrInet4).Port))
}

func TestPullOnlyMirrorNeverAnswersAPoll(t *testing.T) {
	t.Parallel()
	upstream, mirror := newFake(t), newFake(t)
	desc := upstream.image(t, "linux", "amd64", nil)
	upstream.tag("1", desc)
	mirror.tag("1", mirror.image(t, "linux", "arm64", nil))
	upstream.mu.Lock()
	upstream.content["list"] = served{kind: "application/json", body: []byte(`{"tags":["1"]}`)}
	upstream.mu.Unlock()
	r, rec := newRegistry(t, certsD(t, upstream.host(), fmt.Sprintf(
		"server = \"%s\"\n[host.\"%s\"]\ncapabilities = [\"pull\"]\n", upstream.URL, mirror.URL)))

	got, err := r.Resolve(t.Context(), release.Reference{Repository: upstream.repository(), Tag: "1"})
	require.NoError(t, err)
	assert.Equal(t, release.Resolved{Digest: desc.Digest, Host: upstream.host(), Insecure: true}, got)
	_, err = r.Tags(t.Context(), upstream.repository())
	require.NoError(t, err)
	assert.Empty(t, mirror.log(), "neither polls nor lists")

	_, err = r.Describe(t.Context(), upstream.repository(), desc.Digest)
	require.NoError(t, err)
	assert.NotEmpty(t, mirror.log(), "but it may serve a digest")
	assert.NotEmpty(t, rec.lines())
}

func TestNoHostMayResolve(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	r, _ := newRegistry(t, certsD(t, f.host(), "server = \""+f.URL+"\"\ncapabilities = [\"pull\"]\n"))
	_, err := r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
	require.ErrorContains(t, err, "no host has the required capability")
	assert.NotErrorIs(t, err, release.ErrNotFound)
	assert.Empty(t, f.log())
}

// Failures of a host, and the combined error of two hosts.
func TestSourceErrors(t *testing.T) {
	t.Parallel()
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	torn := func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}
	wrongDigest := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(digestHeader, "sha256:12")
		w.WriteHeader(http.StatusOK)
	}
	answers := []struct {
		title            string
		mirror, upstream http.HandlerFunc
		wantHost         string // host of the error
		wantStatus       int
		notFound         bool
		wantText         string
	}{
		{"404 everywhere", status(404), status(404), "upstream", 404, true, "404: not found (mirror"},
		{"404 and down", status(404), torn, "upstream", 0, false, "(mirror"},
		{"down and 404", torn, status(404), "mirror", 0, false, "(upstream"},
		{"500 and 404", status(500), status(404), "mirror", 500, false, "500 Internal Server Error (upstream"},
		{"503 and 502", status(503), status(502), "upstream", 502, false, "502 Bad Gateway (mirror"},
		{"404 and 503", status(404), status(503), "upstream", 503, false, "503 Service Unavailable (mirror"},
		{"503 and 404", status(503), status(404), "mirror", 503, false, "503 Service Unavailable (upstream"},
		{"403 and 429", status(403), status(429), "upstream", 429, false, "429 Too Many Requests"},
		{"401 without challenge", status(404), status(401), "upstream", 401, false, "401 Unauthorized"},
		{"a 2xx that is none", status(404), status(204), "upstream", 204, false, "204 No Content"},
		{"no digest", status(404), wrongDigest, "upstream", 0, false, `digest "sha256:12"`},
	}
	for _, a := range answers {
		t.Run(a.title, func(t *testing.T) {
			t.Parallel()
			upstream, mirror := newFake(t), newFake(t)
			upstream.answer(a.upstream)
			mirror.answer(a.mirror)
			r, _ := newRegistry(t, certsD(t, upstream.host(), fmt.Sprintf("server = %q\n[host.%q]\n", upstream.URL, mirror.URL)))
			_, err := r.Resolve(t.Context(), release.Reference{Repository: upstream.repository(), Tag: "1"})
			var source *release.SourceError
			require.ErrorAs(t, err, &source)
			hosts := map[bool]string{true: "mirror", false: "upstream"}
			assert.Equal(t, a.wantHost, hosts[source.Mirror])
			assert.Equal(t, map[string]string{"mirror": mirror.host(), "upstream": upstream.host()}[a.wantHost], source.Host)
			assert.Equal(t, a.wantStatus, source.Status)
			assert.Equal(t, a.notFound, errors.Is(err, release.ErrNotFound))
			assert.ErrorContains(t, err, a.wantText)
			assert.Equal(t, upstream.repository(), source.Repository)
		})
	}
}

// A directory that containerd ignores is not used, and is named. containerd is asked only if there is one.
func TestHostDirectoriesThatContainerdIgnores(t *testing.T) {
	t.Parallel()
	mirror, own := newFake(t), newFake(t)
	for _, f := range []*fake{mirror, own} {
		f.tag("1", f.image(t, "linux", "amd64", nil))
	}
	certs := t.TempDir()
	addNamespace(t, certs, own.host(), "server = \""+mirror.URL+"\"\n")
	var asked int
	why, away := "config_path is a list", errors.New("connection refused")
	var failure error
	r, _ := newRegistry(t, certs, func(o *Options) {
		o.HostsIgnored = func() (string, error) { asked++; return why, failure }
	})
	ref := release.Reference{Repository: own.host() + "/app", Tag: "1"}
	ignored := filepath.Join(certs, own.host()) + " is ignored: config_path is a list"
	got, err := r.Resolve(t.Context(), ref)
	require.NoError(t, err)
	assert.Equal(t, own.host(), got.Host)
	assert.Equal(t, ignored, got.HostsIgnored)
	_, err = r.Resolve(t.Context(), release.Reference{Repository: own.host() + "/app", Tag: "2"})
	require.ErrorContains(t, err, "404: not found ("+ignored+")")
	require.ErrorIs(t, err, release.ErrNotFound)

	why = "" // containerd was restarted
	got, err = r.Resolve(t.Context(), ref)
	require.NoError(t, err)
	assert.Equal(t, mirror.host(), got.Host)
	assert.Empty(t, got.HostsIgnored)

	failure = away
	_, err = r.Resolve(t.Context(), ref)
	require.ErrorIs(t, err, away, "no host is asked that kubelet may not pull from")
	asked = 0
	_, err = r.Resolve(t.Context(), release.Reference{Repository: mirror.host() + "/app", Tag: "1"})
	require.NoError(t, err)
	assert.Zero(t, asked)
}

// Connections are shared only between hosts with equal trust.
func TestNamespacesDoNotShareTrust(t *testing.T) {
	t.Parallel()
	f := newTLSFake(t)
	f.tag("1", f.image(t, "linux", "amd64", nil))
	otherCA, cert, key := certificate(t)
	root := t.TempDir()
	files := map[string]string{
		"good.example.com":  fmt.Sprintf("[host.%q]\nca = %q\n", f.URL, f.ca(t)),
		"other.example.com": fmt.Sprintf("server = %q\nca = %q\n", f.URL, otherCA),
		"none.example.com":  fmt.Sprintf("server = %q\n", f.URL),
		"skip.example.com":  fmt.Sprintf("server = %q\nskip_verify = true\n", f.URL),
		"mine.example.com":  fmt.Sprintf("server = %q\nca = %q\nclient = [[%q, %q]]\n", f.URL, f.ca(t), cert, key),
	}
	for namespace, file := range files {
		addNamespace(t, root, namespace, file)
	}
	r, _ := newRegistry(t, root)
	poll := func(namespace string) error {
		_, err := r.Resolve(t.Context(), release.Reference{Repository: namespace + "/app", Tag: "1"})
		return err
	}
	for _, namespace := range []string{"skip.example.com", "good.example.com", "mine.example.com"} {
		require.NoError(t, poll(namespace))
	}
	assert.GreaterOrEqual(t, r.Counts().Connections, uint64(3))
	for _, namespace := range []string{"other.example.com", "none.example.com"} {
		require.ErrorContains(t, poll(namespace), "unknown authority", namespace)
	}
}

func TestBadNames(t *testing.T) {
	t.Parallel()
	r, rec := newRegistry(t, t.TempDir())
	for _, ref := range []release.Reference{
		{Repository: "a.example.com/app", Tag: ""},
		{Repository: "a.example.com/app", Tag: "../../x"},
		{Repository: "a.example.com/app", Tag: "1?x"},
		{Repository: "a.example.com/../app", Tag: "1"},
		{Repository: "a.example.com/app:1", Tag: "1"},
		{Repository: "", Tag: "1"},
	} {
		_, err := r.Resolve(t.Context(), ref)
		require.Error(t, err, ref)
	}
	_, err := r.Describe(t.Context(), "a.example.com/app", digest.Digest("sha256:../x"))
	require.Error(t, err)
	assert.Empty(t, rec.lines())
}
