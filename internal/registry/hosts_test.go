// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

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

func TestMirrorsInFileOrder(t *testing.T) {
	t.Parallel()
	upstream, mirror := startDistribution(t), startDistribution(t)
	img := testImage(t, "linux/amd64")
	push(t, upstream+"/app:1", img)
	push(t, mirror+"/app:1", img)
	push(t, upstream+"/app:only-upstream", img)
	dead := deadHost(t)
	file := `server = "http://%[1]s"
[host."http://%[3]s"]
  capabilities = ["pull", "resolve"]
[host."http://%[2]s"]
  capabilities = ["pull", "resolve"]
`
	r, rec := newRegistry(t, certsD(t, upstream, fmt.Sprintf(file, upstream, mirror, dead)))
	polls := []struct {
		tag, host string
		mirror    bool
	}{
		{"1", mirror, true},
		{"only-upstream", upstream, false},
	}
	for _, poll := range polls {
		got, err := r.Resolve(t.Context(), release.Reference{Repository: upstream + "/app", Tag: poll.tag})
		require.NoError(t, err)
		assert.Equal(t, poll.host, got.Host, poll.tag)
		assert.Equal(t, poll.mirror, got.Mirror, poll.tag)
	}
	assert.Equal(t, []string{
		"HEAD " + dead + " /v2/app/manifests/1",
		"HEAD " + mirror + " /v2/app/manifests/1",
		"HEAD " + dead + " /v2/app/manifests/only-upstream",
		"HEAD " + mirror + " /v2/app/manifests/only-upstream",
		"HEAD " + upstream + " /v2/app/manifests/only-upstream",
	}, rec.lines())
	assert.Equal(t, "ns="+upstream[:9]+"%3A"+upstream[10:], rec.sent[1].URL.RawQuery, "a mirror is told the namespace")
	assert.Empty(t, rec.sent[4].URL.RawQuery, "the namespace itself is not")
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

func TestRetryAfterIsHandedOn(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	f := newFake(t)
	f.answer(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "90")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())), func(o *Options) {
		o.Now = func() time.Time { return now }
	})
	_, err := r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
	var source *release.SourceError
	require.ErrorAs(t, err, &source)
	assert.Equal(t, now.Add(90*time.Second), source.RetryAt)
	assert.Len(t, f.log(), 1, "nothing is asked again")
}

func TestHostsFileIsReadAgain(t *testing.T) {
	t.Parallel()
	first, second := newFake(t), newFake(t)
	for _, f := range []*fake{first, second} {
		f.tag("1", f.image(t, "linux", "amd64", nil))
	}
	root := certsD(t, "registry.example.com", "server = \""+first.URL+"\"\n")
	r, _ := newRegistry(t, root)
	ref := release.Reference{Repository: "registry.example.com/app", Tag: "1"}
	got, err := r.Resolve(t.Context(), ref)
	require.NoError(t, err)
	assert.Equal(t, first.host(), got.Host)

	addNamespace(t, root, "registry.example.com", "server = \""+second.URL+"\"  # moved\n")
	got, err = r.Resolve(t.Context(), ref)
	require.NoError(t, err)
	assert.Equal(t, second.host(), got.Host)
}

func TestHostDirectories(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.tag("1", f.image(t, "linux", "amd64", nil))
	first, second := t.TempDir(), t.TempDir()
	addNamespace(t, second, "registry.example.com_5000_", "server = \""+f.URL+"\"\n")
	addNamespace(t, second, "_default", "server = \""+f.URL+"/prefix\"\n")
	r, rec := newRegistry(t, first, func(o *Options) { o.CertsDirs = []string{first, second} })
	for _, repository := range []string{"registry.example.com:5000/app", "docker.io/sles12/velum"} {
		got, err := r.Resolve(t.Context(), release.Reference{Repository: repository, Tag: "1"})
		require.NoError(t, err)
		assert.True(t, got.Mirror)
	}
	assert.Equal(t, []string{
		"HEAD " + f.host() + " /v2/app/manifests/1",
		"HEAD " + f.host() + " /prefix/v2/sles12/velum/manifests/1",
	}, rec.lines())
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

// The mirror of several namespaces uses one connection.
func TestNamespacesShareConnections(t *testing.T) {
	t.Parallel()
	f := newTLSFake(t)
	f.tag("1", f.image(t, "linux", "amd64", nil))
	ca := f.ca(t)
	root := t.TempDir()
	for _, namespace := range []string{"a.example.com", "b.example.com", "c.example.com"} {
		addNamespace(t, root, namespace, fmt.Sprintf("[host.%q]\nca = %q\ndial_timeout = \"5s\"\n", f.URL, ca))
	}
	r, _ := newRegistry(t, root)
	for _, namespace := range []string{"a.example.com", "b.example.com", "c.example.com"} {
		_, err := r.Resolve(t.Context(), release.Reference{Repository: namespace + "/app", Tag: "1"})
		require.NoError(t, err)
	}
	assertKept(t, r, 1)
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

func TestRequestHeaders(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.tag("1", f.image(t, "linux", "amd64", nil))
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())+"[header]\nx-site = \"nuremberg\"\n"))
	_, err := r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
	require.NoError(t, err)
	sent := f.asked[0].Header
	assert.Equal(t, "image-update-agent/1.2.3", sent.Get("User-Agent"))
	assert.Equal(t, acceptManifests, sent.Get("Accept"))
	assert.Equal(t, "nuremberg", sent.Get("X-Site"))
}

func TestBadHostFiles(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "registry.example.com")
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	r, _ := newRegistry(t, root)
	_, err := r.Resolve(t.Context(), release.Reference{Repository: "registry.example.com/app", Tag: "1"})
	var source *release.SourceError
	require.ErrorAs(t, err, &source)
	assert.ErrorContains(t, err, "certs.d: ")

	fifo := filepath.Join(root, "fifo.example.com", "hosts.toml")
	require.NoError(t, os.Mkdir(filepath.Dir(fifo), 0o755))
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	_, err = r.Resolve(t.Context(), release.Reference{Repository: "fifo.example.com/app", Tag: "1"})
	require.ErrorContains(t, err, fifo+": not a regular file")

	addNamespace(t, root, "ca.example.com", "server = \"https://ca.example.com\"\nca = \"none.crt\"\n")
	_, err = r.Resolve(t.Context(), release.Reference{Repository: "ca.example.com/app", Tag: "1"})
	assert.ErrorContains(t, err, "none.crt")
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
