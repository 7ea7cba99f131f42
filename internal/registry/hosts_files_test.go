// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// internet answers for every host without a network: each HEAD has a digest.
type internet struct {
	status map[string]int // by host, instead of 200

	mu   sync.Mutex
	sent []*http.Request
}

func (i *internet) wrap(http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.sent = append(i.sent, req)
		status, ok := i.status[req.URL.Host]
		if !ok {
			status = http.StatusOK
		}
		return &http.Response{
			StatusCode: status, Header: http.Header{digestHeader: {testDigest}}, Request: req,
			Body: io.NopCloser(strings.NewReader("")), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		}, nil
	})
}

// asked returns the URLs of the requests; ns replaces the name of the namespace.
func (i *internet) asked() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var urls []string
	for _, req := range i.sent {
		text := req.Method + " " + req.URL.Scheme + "://" + req.URL.Host + req.URL.Path
		if ns := req.URL.Query().Get("ns"); ns != "" {
			text += " ns=" + ns
		}
		urls = append(urls, text)
	}
	return urls
}

// The effect of a hosts.toml for registry.suse.com on a poll: the requested URLs, and the host that answers.
func TestHostsFile(t *testing.T) {
	t.Parallel()
	const suse, mirror = "registry.suse.com", "m.example.com:5000"
	const upstreamAsked = "HEAD https://registry.suse.com/v2/caasp/v4/velum/manifests/1"
	const atMirror = "HEAD https://m.example.com:5000/v2/caasp/v4/velum/manifests/1 ns=registry.suse.com"
	files := []struct {
		title, toml string
		status      map[string]int
		asked       []string
		host        string
		mirror      bool
		failed      int // status of the error; 0: none
	}{
		{"none", "", nil, []string{upstreamAsked}, suse, false, 0},
		{"its own server", `server = "https://registry.suse.com"`, nil, []string{upstreamAsked}, suse, false, 0},
		{"server without a scheme", `server = "registry.suse.com"`, nil, []string{upstreamAsked}, suse, false, 0},
		{"a mirror as server", `server = "https://m.example.com:5000"`, nil, []string{atMirror}, mirror, true, 0},
		{
			"a mirror as server, down", `server = "https://m.example.com:5000"`,
			map[string]int{mirror: 503},
			[]string{atMirror},
			mirror, true, 503,
		},
		{"a mirror answers", `[host."https://m.example.com:5000"]`, nil, []string{atMirror}, mirror, true, 0},
		{
			"a mirror has not", `[host."https://m.example.com:5000"]`,
			map[string]int{mirror: 404},
			[]string{atMirror, upstreamAsked},
			suse, false, 0,
		},
		{
			"a mirror is down, upstream has not", `[host."https://m.example.com:5000"]`,
			map[string]int{mirror: 503, suse: 404},
			[]string{atMirror, upstreamAsked},
			mirror, true, 503,
		},
		{
			"a mirror has not, upstream is down", `[host."https://m.example.com:5000"]`,
			map[string]int{mirror: 404, suse: 503},
			[]string{atMirror, upstreamAsked},
			suse, false, 503,
		},
		{
			"nobody has", `[host."https://m.example.com:5000"]`,
			map[string]int{mirror: 404, suse: 404},
			[]string{atMirror, upstreamAsked},
			suse, false, 404,
		},
		{
			"order of the file, not of the names", "[host.\"https://z.example.com\"]\n[host.\"https://z.example.com\".header]\nx-a = \"header-of-z\"\n[host.\"https://a.example.com\"]\n[host.\"https://m.example.com:5000\"]",
			map[string]int{"z.example.com": 404, "a.example.com": 500},
			[]string{strings.Replace(atMirror, mirror, "z.example.com", 1), strings.Replace(atMirror, mirror, "a.example.com", 1), atMirror},
			mirror, true, 0,
		},
		{"plain http", `server = "http://m.example.com:5000"`, nil, []string{strings.Replace(atMirror, "https", "http", 1)}, mirror, true, 0},
		{
			"pull only", "[host.\"https://m.example.com:5000\"]\ncapabilities = [\"pull\"]", nil,
			[]string{upstreamAsked},
			suse, false, 0,
		},
		{
			"resolve only: it does not serve what it names", "[host.\"https://m.example.com:5000\"]\ncapabilities = [\"resolve\"]", nil,
			[]string{upstreamAsked},
			suse, false, 0,
		},
		{
			"push only", "[host.\"https://m.example.com:5000\"]\ncapabilities = [\"push\"]", nil,
			[]string{upstreamAsked},
			suse, false, 0,
		},
		{
			"pull and resolve", "[host.\"https://m.example.com:5000\"]\ncapabilities = [\"resolve\", \"pull\"]", nil,
			[]string{atMirror},
			mirror, true, 0,
		},
		{
			"prefix, as a URL of its own", "[host.\"https://m.example.com:5000/v2/registry.suse.com\"]\noverride_path = true", nil,
			[]string{strings.Replace(atMirror, "/v2/", "/v2/registry.suse.com/", 1)},
			mirror, true, 0,
		},
		{
			"prefix before the API", "[host.\"https://m.example.com:5000/registry.suse.com\"]", nil,
			[]string{strings.Replace(atMirror, "/v2/", "/registry.suse.com/v2/", 1)},
			mirror, true, 0,
		},
		{
			"no path at all", "[host.\"https://m.example.com:5000\"]\noverride_path = true", nil,
			[]string{strings.Replace(atMirror, "/v2/", "/", 1)},
			mirror, true, 0,
		},
		{
			"a file that containerd cannot read, and takes for none", "[host.\"https://m.example.com:5000\"]\ncapabilities = [\"fly\"]", nil,
			[]string{upstreamAsked},
			suse, false, 0,
		},
	}
	for _, f := range files {
		t.Run(f.title, func(t *testing.T) {
			t.Parallel()
			net := &internet{status: f.status}
			r, _ := newRegistry(t, certsD(t, suse, f.toml+"\n"), func(o *Options) { o.Wrap = net.wrap })
			got, err := r.Resolve(t.Context(), release.Reference{Repository: suse + "/caasp/v4/velum", Tag: "1"})
			assert.Equal(t, f.asked, net.asked())
			if f.failed == 0 {
				require.NoError(t, err)
				assert.Equal(t, f.host, got.Host)
				assert.Equal(t, f.mirror, got.Mirror)
				return
			}
			var source *release.SourceError
			require.ErrorAs(t, err, &source)
			assert.Equal(t, []any{f.host, f.mirror, f.failed}, []any{source.Host, source.Mirror, source.Status})
			if f.failed == http.StatusNotFound {
				require.ErrorIs(t, err, release.ErrNotFound)
			} else {
				require.NotErrorIs(t, err, release.ErrNotFound)
			}
			side := map[bool]string{true: "mirror ", false: "upstream "}
			assert.ErrorContains(t, err, side[f.mirror]+f.host)
		})
	}
}

// The places of a namespace's directory; the first one wins.
func TestDirectoryOfANamespace(t *testing.T) {
	t.Parallel()
	places := []struct {
		namespace string
		dirs      []string // "1/x": x in the first directory of config_path; each answers with its name
		want      string   // of dirs; empty: none
	}{
		{"reg.example.com:5000", []string{"1/reg.example.com_5000_", "1/reg.example.com:5000", "1/_default"}, "1/reg.example.com_5000_"},
		{"reg.example.com:5000", []string{"1/reg.example.com:5000", "1/_default"}, "1/reg.example.com:5000"},
		{"reg.example.com:5000", []string{"1/reg.example.com", "1/reg.example.com_5001_"}, ""},
		{"reg.example.com:5000", []string{"1/_default", "2/reg.example.com_5000_"}, "1/_default"},
		{"reg.example.com:5000", []string{"2/reg.example.com_5000_", "2/_default"}, "2/reg.example.com_5000_"},
		{"reg.example.com", []string{"1/reg.example.com", "1/_default"}, "1/reg.example.com"},
		{"reg.example.com", []string{"1/reg.example.com_5000_", "2/_default"}, "2/_default"},
		{"reg.example.com", nil, ""},
	}
	for _, p := range places {
		t.Run(fmt.Sprintf("%s in %v", p.namespace, p.dirs), func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for i, dir := range p.dirs {
				addNamespace(t, root, dir, fmt.Sprintf("server = \"https://place%d.example.com\"\n", i))
			}
			net := &internet{}
			r, _ := newRegistry(t, "", func(o *Options) {
				o.Wrap = net.wrap
				o.CertsDirs = []string{filepath.Join(root, "0"), filepath.Join(root, "1"), filepath.Join(root, "2")}
			})
			got, err := r.Resolve(t.Context(), release.Reference{Repository: p.namespace + "/app", Tag: "1"})
			require.NoError(t, err)
			want := p.namespace
			for i, dir := range p.dirs {
				if dir == p.want {
					want = fmt.Sprintf("place%d.example.com", i)
				}
			}
			assert.Equal(t, want, got.Host)
		})
	}
}

// The names of upstream and namespace may differ.
func TestUpstreamOfANamespace(t *testing.T) {
	t.Parallel()
	names := []struct{ repository, asked, host string }{
		{"docker.io/sles12/velum", "HEAD https://registry-1.docker.io/v2/sles12/velum/manifests/1", "registry-1.docker.io"},
		{"velum", "HEAD https://registry-1.docker.io/v2/library/velum/manifests/1", "registry-1.docker.io"},
		{"index.docker.io/a/b", "HEAD https://registry-1.docker.io/v2/a/b/manifests/1", "registry-1.docker.io"},
		{
			"mirror.example.com:5000/registry.suse.com/caasp/v4/velum",
			"HEAD https://mirror.example.com:5000/v2/registry.suse.com/caasp/v4/velum/manifests/1", "mirror.example.com:5000",
		},
	}
	for _, n := range names {
		net := &internet{}
		r, _ := newRegistry(t, t.TempDir(), func(o *Options) { o.Wrap = net.wrap })
		got, err := r.Resolve(t.Context(), release.Reference{Repository: n.repository, Tag: "1"})
		require.NoError(t, err)
		assert.Equal(t, []string{n.asked}, net.asked())
		assert.Equal(t, n.host, got.Host)
		assert.False(t, got.Mirror)
	}
}

// Headers of hosts.toml, one or several with a name, are sent only to their host; the User-Agent is the agent's.
func TestHeadersOfAHost(t *testing.T) {
	t.Parallel()
	net := &internet{status: map[string]int{"m.example.com": 404}}
	r, _ := newRegistry(t, certsD(t, "registry.suse.com", `[host."https://m.example.com"]
[host."https://m.example.com".header]
x-api-key = "`+secret+`"
x-many = ["first-of-many", "second-of-many"]
user-agent = "another agent"
`), func(o *Options) { o.Wrap = net.wrap })
	_, err := r.Resolve(t.Context(), release.Reference{Repository: "registry.suse.com/app", Tag: "1"})
	require.NoError(t, err)
	require.Len(t, net.sent, 2)
	assert.Equal(t, http.Header{
		"Accept": {acceptManifests}, "User-Agent": {"image-update-agent/1.2.3"},
		"X-Api-Key": {secret}, "X-Many": {"first-of-many", "second-of-many"},
	}, net.sent[0].Header)
	assert.Equal(t, http.Header{"Accept": {acceptManifests}, "User-Agent": {"image-update-agent/1.2.3"}}, net.sent[1].Header)
}

// A password in a header of hosts.toml is protected as well.
func TestAuthorizationOfHostsFileIsNotSentOverPlainHTTP(t *testing.T) {
	t.Parallel()
	f, secure := newFake(t), newTLSFake(t)
	secure.tag("1", secure.image(t, "linux", "amd64", nil))
	secure.answer(basic)
	header := "[header]\nauthorization = \"basic " + encodedAuth("u", secret) + "\"\n"
	root := certsD(t, f.host(), plainHTTP(f.host())+header)
	addNamespace(t, root, secure.host(), secure.tlsHost(t)+header)
	r, _ := newRegistry(t, root)
	_, err := r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
	require.ErrorContains(t, err, "credentials are not sent over plain http")
	assert.Empty(t, f.log())
	_, err = r.Resolve(t.Context(), release.Reference{Repository: secure.repository(), Tag: "1"})
	require.NoError(t, err)
	assert.Len(t, secure.log(), 1)
}

// Any change in certs.d applies to the next poll.
func TestChangedHostsFiles(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	net := &internet{}
	r, _ := newRegistry(t, root, func(o *Options) { o.Wrap = net.wrap })
	steps := []struct {
		title  string
		change func() error
		want   string
	}{
		{"nothing there", func() error { return nil }, "reg.example.com"},
		{"_default appears", func() error { return server(root, "_default", "d.example.com") }, "d.example.com"},
		{"its own appears", func() error { return server(root, "reg.example.com", "own.example.com") }, "own.example.com"},
		{"other content", func() error { return server(root, "reg.example.com", "other.example.com") }, "other.example.com"},
		{"replaced by one of its size and time", func() error {
			was, err := os.Stat(filepath.Join(root, "reg.example.com/hosts.toml"))
			if err != nil {
				return err
			}
			if err := server(root, "new", "newer.example.com"); err != nil {
				return err
			}
			if err := os.Chtimes(filepath.Join(root, "new/hosts.toml"), time.Time{}, was.ModTime()); err != nil {
				return err
			}
			return os.Rename(filepath.Join(root, "new/hosts.toml"), filepath.Join(root, "reg.example.com/hosts.toml"))
		}, "newer.example.com"},
		{"removed", func() error { return os.RemoveAll(filepath.Join(root, "reg.example.com")) }, "d.example.com"},
		{"all removed", func() error { return os.RemoveAll(root) }, "reg.example.com"},
	}
	for _, s := range steps {
		require.NoError(t, s.change(), s.title)
		got, err := r.Resolve(t.Context(), release.Reference{Repository: "reg.example.com/app", Tag: "1"})
		require.NoError(t, err, s.title)
		assert.Equal(t, s.want, got.Host, s.title)
	}
}

// A poll of many images checks the files once, and again after a second.
func TestFilesOfHostsAreCheckedOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		net := &internet{}
		r, _ := newRegistry(t, root, func(o *Options) { o.Wrap = net.wrap })
		r.hosts.CheckEvery = hosts.CheckEvery
		answers := func() string {
			got, err := r.Resolve(t.Context(), release.Reference{Repository: "reg.example.com/app", Tag: "1"})
			require.NoError(t, err)
			return got.Host
		}
		require.NoError(t, server(root, "reg.example.com", "old.example.com"))
		require.Equal(t, "old.example.com", answers())
		// Of another length: the file may keep its time, of which the kernel has one for each of its ticks.
		require.NoError(t, server(root, "reg.example.com", "newer.example.com"))
		assert.Equal(t, "old.example.com", answers())
		time.Sleep(time.Second) //nolint:forbidigo // the bubble's time
		assert.Equal(t, "newer.example.com", answers())
	})
}

func server(root, namespace, host string) error {
	dir := filepath.Join(root, namespace)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	u := url.URL{Scheme: "https", Host: host}
	return os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(fmt.Sprintf("server = %q\n", u.String())), 0o600)
}

// The errors of checkDir are in the error of a poll and of a pull.
func TestHostsFilesThatCannotBeReadEndPollsAndPulls(t *testing.T) {
	t.Parallel()
	r, _ := newRegistry(t, certsD(t, publicHost, "ca = \"/dev/zero\"\n"))
	_, err := r.Resolve(t.Context(), release.Reference{Repository: publicHost + "/app", Tag: "1"})
	require.ErrorContains(t, err, "/dev/zero: not a regular file")
	_, err = r.Locate(t.Context(), publicHost+"/app", testDigest)
	require.ErrorContains(t, err, "certs.d: ")
	require.ErrorContains(t, err, "/dev/zero: not a regular file")
}
