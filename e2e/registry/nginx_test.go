// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// behindNginx returns a node whose registry is behind the nginx of SUSE's guide.
func behindNginx(t *testing.T, o node.RegistryOptions) *node.Node {
	t.Helper()
	n := node.Start(t, node.Options{Containerd: node.Containerd2})
	o.VirtualHost = story.GuideNginx
	n.Registry = n.StartRegistryWith(o)
	return n
}

// TestNginx checks that the agent finds, stages, pins and offers updates behind SUSE's nginx; a poll without news is
// one HEAD request per tag on one connection, with the product's User-Agent.
func TestNginx(t *testing.T) {
	t.Parallel()
	n := behindNginx(t, node.RegistryOptions{})
	story.Template(n, 1, n.Registry.Ref("demo/velum:__TAG__"))
	n.WriteFile(story.TemplateDir+"side.yaml", story.PodYAML("side", n.Registry.Ref("demo/side:1.0.0-rev1")))
	story.Rel(n, "demo/side", "1.0.0-rev1-build1.1")
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
	s := story.Cycle(t, n, 0)
	story.IsCurrent(t, s)
	assert.Equal(t, n.Registry.Host, s.Sources[0].Host)
	assert.False(t, s.Sources[0].Insecure)

	rev2 := story.Rel(n, "demo/velum", "4.0.0-rev2-build1.5")
	n.Registry.Forget()
	s = story.Cycle(t, n, 0)
	require.Equal(t, status.StateStaged, s.State, s.Reason)
	images, _ := story.Stored(t, n)
	assert.Contains(t, images[n.Registry.Ref("demo/velum:4.0.0-rev2-build1.5")], rev2)
	assert.Contains(t, strings.Join(story.Pins(t, n), "\n"), rev2)
	requests := n.Registry.Requests()
	assert.Positive(t, requests.Bytes(node.Blob))
	for _, r := range requests {
		assert.True(t, strings.HasPrefix(r.UserAgent, "image-update-agent/"), "%+v", r)
	}
	_, err := n.CRI().Pull(n.Registry.Ref("demo/velum:4.0.0-rev2"))
	require.NoError(t, err, "as kubelet will")

	steadyBehindNginx(t, n, 2)
	n.Registry.Down()
	s = story.Check(t, n)
	assert.Equal(t, status.StateStale, s.State)
	assert.Contains(t, s.Reason, n.Registry.Host+": 502 Bad Gateway")
}

func steadyBehindNginx(t *testing.T, n *node.Node, images int) {
	t.Helper()
	const polls = 3
	n.Registry.Forget()
	n.WriteFile(story.ConfigFile, "interval: 1s\n")
	story.StartDaemon(t, n)
	node.Eventually(t, "steady polls", story.Ready, func() error {
		if got := n.Registry.Requests().Count(http.MethodHead, node.Manifest); got < polls*images {
			return fmt.Errorf("%d requests", got)
		}
		return nil
	})
	requests := n.Registry.Requests()
	assert.Zero(t, len(requests)-requests.Count(http.MethodHead, node.Manifest), "%+v", requests)
	// nginx writes a line after its client has the answer: the last lines may still be those of earlier connections.
	node.Eventually(t, "polls on one connection", story.Ready, func() error {
		lines := n.Registry.NginxLog()
		connections := map[string]int{}
		for _, line := range lines[max(0, len(lines)-polls*images):] {
			connections[strings.Fields(line)[0]]++
		}
		if len(connections) != 1 {
			return fmt.Errorf("requests by connection: %v", connections)
		}
		return nil
	})
}

// refused maps user agents to the status that SUSE's nginx gives them: 404, or none of its own.
var refused = map[string]int{
	"Go 1.1 package http":              http.StatusNotFound, // Go's former default
	"docker/1.4.1 go/go1.3.3":          http.StatusNotFound,
	"docker/1.5.0":                     http.StatusNotFound,
	"docker/1.5.0-dev":                 http.StatusOK,
	"docker/1.13.1 go/go1.7.5":         http.StatusOK,
	"Go-http-client/1.1":               http.StatusOK,
	"image-update-agent/devel":         http.StatusOK,
	"Mozilla/5.0 (docker/1.3, Go 1.1)": http.StatusOK,
}

// TestNginxRefusesOldClients checks that the guide's nginx answers 404 to old clients, and passes the client's
// User-Agent, host and scheme on to the registry.
func TestNginxRefusesOldClients(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{})
	r := n.StartRegistryWith(node.RegistryOptions{VirtualHost: story.GuideNginx})
	r.Push("demo/velum", node.Image{}, "4.0.0")
	var lock sync.Mutex
	var forwarded []string
	r.Intercept(func(_ http.ResponseWriter, q *http.Request) bool {
		lock.Lock()
		defer lock.Unlock()
		forwarded = append(forwarded, q.UserAgent()+" "+q.Host+" "+q.Header.Get("X-Forwarded-Proto"))
		return false
	})
	pem, err := os.ReadFile(r.CA)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(pem))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	defer client.CloseIdleConnections()
	var want []string
	for name, status := range refused {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodHead, "https://"+r.Ref("x"), nil)
		require.NoError(t, err)
		request.URL.Path = "/v2/demo/velum/manifests/4.0.0"
		request.Header.Set("User-Agent", name)
		response, err := client.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, status, response.StatusCode, name)
		if status == http.StatusOK {
			want = append(want, name+" "+r.Host+" https")
			assert.Equal(t, "registry/2.0", response.Header.Get("Docker-Distribution-Api-Version"))
		}
	}
	lock.Lock()
	defer lock.Unlock()
	assert.ElementsMatch(t, want, forwarded)
}
