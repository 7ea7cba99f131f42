// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// servers are the registries other than docker-registry, with the media types that they store. velum has five tags in
// the end, which are three pages of two.
var servers = map[string]struct {
	options node.RegistryOptions
	nginx   bool
	image   node.Image
	pages   int
}{
	"distribution 3": {
		node.RegistryOptions{Program: node.Distribution3, MaxTags: 2},
		false,
		node.Image{OCI: true, Platforms: []string{"linux/amd64", "linux/arm64"}},
		3,
	},
	"distribution 3 behind nginx": {
		node.RegistryOptions{Program: node.Distribution3, MaxTags: 2}, true, node.Image{OCI: true}, 3,
	},
	"distribution 2.6, a manifest": {
		node.RegistryOptions{Program: node.Distribution26}, false, node.Image{}, 1,
	},
	"distribution 2.6, a manifest list": {
		node.RegistryOptions{Program: node.Distribution26},
		false,
		node.Image{Platforms: []string{"linux/amd64", "linux/arm64"}},
		1,
	},
}

// TestRegistries runs the main job with each registry: it finds, stages, pins and offers the update, and kubelet can
// start it.
func TestRegistries(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{Containerd: node.Containerd2})
			if server.nginx {
				server.options.VirtualHost = story.GuideNginx
			}
			n.Registry = n.StartRegistryWith(server.options)
			story.Template(n, 1, n.Registry.Ref("demo/velum:__TAG__"))
			n.WriteFile(story.GrainFile, "roles: [admin]\n")
			server.image.Layers = []node.Layer{{Seed: 1, Size: 1 << 20}}
			n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.1", server.image)
			s := story.Cycle(t, n, 0)
			story.IsCurrent(t, s)

			server.image.Layers = []node.Layer{{Seed: 2, Size: 1 << 20}}
			rev2 := n.Registry.Publish("demo/velum", "4.0.0-rev2-build1.5", server.image)
			n.Registry.Forget()
			s = story.Cycle(t, n, 0)
			require.Equal(t, status.StateStaged, s.State, s.Reason)
			assert.Equal(t, server.pages, n.Registry.Requests().Count(http.MethodGet, node.Tags))
			velum := story.ImageOf(t, s, "velum.yaml")
			assert.True(t, velum.Staged)
			assert.Equal(t, "4.0.0-rev2-build1.5", velum.Offered.Tag)
			assert.Equal(t, rev2, velum.Offered.Digest.String())
			images, _ := story.Stored(t, n)
			assert.Contains(t, images[n.Registry.Ref("demo/velum:4.0.0-rev2-build1.5")], rev2)
			assert.Contains(t, story.Pins(t, n), rev2)
			assert.Contains(t, n.ReadFile(story.GrainFile), "image_update_available: true\n")
			n.Registry.Forget()
			_, err := n.CRI().Pull(n.Registry.Ref("demo/velum:4.0.0-rev2"))
			require.NoError(t, err)
			assert.Zero(t, n.Registry.Requests().Bytes(node.Blob), "what was staged is not fetched again")
		})
	}
}

// TestNextPageByHTTP checks that the agent asks by HTTPS for a next page that a registry links by HTTP, since it does
// not know that it is behind a TLS proxy.
func TestNextPageByHTTP(t *testing.T) {
	t.Parallel()
	n := behindNginx(t, node.RegistryOptions{Program: node.Distribution3, MaxTags: 2})
	r := n.Registry
	story.Template(n, 1, r.Ref("demo/velum:__TAG__"))
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
	story.Cycle(t, n, 0)
	story.Rel(n, "demo/velum", "4.0.0-rev2-build1.5")
	r.Intercept(func(w http.ResponseWriter, q *http.Request) bool {
		if !strings.HasSuffix(q.URL.Path, "/tags/list") || q.URL.Query().Has("last") {
			return false
		}
		w.Header().Set("Link", fmt.Sprintf(`<http://%s/v2/demo/velum/tags/list?last=4.0.0&n=1000>; rel="next"`, r.Host))
		_, _ = w.Write([]byte(`{"name":"demo/velum","tags":["4.0.0"]}`))
		return true
	})
	r.Forget()
	s := story.Cycle(t, n, 0)
	assert.Equal(t, "4.0.0-rev2-build1.5", story.ImageOf(t, s, "velum.yaml").Offered.Tag)
	assert.Equal(t, 4, r.Requests().Count(http.MethodGet, node.Tags), "this one, two more pages, and an empty one")
}

// TestUntagged deletes the tag that a pod follows; its digest still exists. That raises an alarm, and changes nothing.
func TestUntagged(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2})
	n.Registry = n.StartRegistryWith(node.RegistryOptions{Program: node.Distribution3})
	story.Template(n, 1, n.Registry.Ref("demo/velum:__TAG__"))
	n.WriteFile(story.GrainFile, "roles: [admin]\n")
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
	story.Cycle(t, n, 0)
	before := story.Look(t, n, story.GrainFile)
	n.Registry.Untag("demo/velum", "4.0.0-rev1")
	s := story.Cycle(t, n, 1)
	assert.Equal(t, status.StateFailed, s.State)
	assert.Contains(t, s.Reason, "velum.yaml: the registry no longer has the followed tag")
	before.Unchanged(t, n, story.GrainFile)
}
