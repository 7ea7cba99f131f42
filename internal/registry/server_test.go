// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/platforms"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
)

// node is the platform of all tests, on any machine.
var node = platforms.OnlyStrict(ocispec.Platform{OS: "linux", Architecture: "amd64"})

var listening = regexp.MustCompile(`listening on (127\.0\.0\.1:\d+)`)

// startDistribution runs docker-registry as packaged by Debian and SUSE, and returns its host:port. pair is a
// certificate and key for TLS, or nothing.
func startDistribution(t testing.TB, pair ...string) string {
	t.Helper()
	return startDistributionWith(t, "", pair...)
}

// startDistributionWith adds YAML to the configuration.
func startDistributionWith(t testing.TB, more string, pair ...string) string {
	t.Helper()
	binary, err := exec.LookPath("docker-registry")
	require.NoError(t, err, "install the package docker-registry")
	dir := t.TempDir()
	config := "version: 0.1\nstorage: {filesystem: {rootdirectory: " + dir + "/data}}\nhttp:\n  addr: 127.0.0.1:0\n"
	if len(pair) == 2 {
		config += "  tls: {certificate: " + pair[0] + ", key: " + pair[1] + "}\n"
	}
	config += more
	path := filepath.Join(dir, "config.yml")
	require.NoError(t, os.WriteFile(path, []byte(config), 0o600))
	cmd := exec.Command(binary, "serve", path)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	logRead := make(chan struct{})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-logRead
		_ = cmd.Wait()
	})
	addr := make(chan string, 1)
	go func() {
		defer close(logRead)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				addr <- m[1]
			}
		}
		_, _ = io.Copy(io.Discard, stderr)
	}()
	select {
	case a := <-addr:
		return a
	case <-logRead:
		require.FailNow(t, "docker-registry ended")
	}
	return ""
}

// certsD returns a directory of certs.d with one hosts.toml; the namespace may be host:port.
func certsD(t testing.TB, namespace, hostsTOML string) string {
	t.Helper()
	root := t.TempDir()
	addNamespace(t, root, namespace, hostsTOML)
	return root
}

func addNamespace(t testing.TB, root, namespace, hostsTOML string) {
	t.Helper()
	dir := filepath.Join(root, namespace)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(hostsTOML), 0o600))
}

// plainHTTP returns the hosts.toml of a namespace that is its own registry, over http.
func plainHTTP(host string) string { return fmt.Sprintf("server = \"http://%s\"\n", host) }

// recorder is a Wrap that records the requests.
type recorder struct {
	mu   sync.Mutex
	sent []*http.Request
}

func (r *recorder) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		r.mu.Lock()
		r.sent = append(r.sent, req)
		r.mu.Unlock()
		return next.RoundTrip(req)
	})
}

// lines returns the requests as "HEAD host path".
func (r *recorder) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for _, req := range r.sent {
		lines = append(lines, strings.Join([]string{req.Method, req.URL.Host, req.URL.Path}, " "))
	}
	return lines
}

// authorized counts the requests with credentials.
func (r *recorder) authorized() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, req := range r.sent {
		if req.Header.Get("Authorization") != "" {
			n++
		}
	}
	return n
}

// testImage returns a random image for a platform, such as "linux/amd64".
func testImage(t testing.TB, platform string) v1.Image {
	t.Helper()
	img, err := random.Image(300, 2)
	require.NoError(t, err)
	config, err := img.ConfigFile()
	require.NoError(t, err)
	config = config.DeepCopy()
	config.OS, config.Architecture, _ = strings.Cut(platform, "/")
	config.Created = v1.Time{Time: time.Date(2020, 9, 1, 12, 0, 0, 0, time.UTC)}
	config.Config.Labels = map[string]string{
		"org.opencontainers.image.version": "4.0.0",
		"org.opensuse.reference":           "registry.suse.com/caasp/v4/velum:4.0.0-rev1-build1.3",
	}
	img, err = mutate.ConfigFile(img, config)
	require.NoError(t, err)
	return img
}

// push puts an image or an index into a plain-http registry.
func push(t testing.TB, reference string, what remote.Taggable) {
	t.Helper()
	ref, err := name.ParseReference(reference, name.Insecure)
	require.NoError(t, err)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	options := []remote.Option{remote.WithTransport(transport), remote.WithContext(t.Context())}
	switch w := what.(type) {
	case v1.Image:
		require.NoError(t, remote.Write(ref, w, options...))
	case v1.ImageIndex:
		require.NoError(t, remote.WriteIndex(ref, w, options...))
	default:
		require.Fail(t, "neither image nor index")
	}
}
