// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// A new image takes the requests of CRI's pull (a HEAD for the tag, its manifest, its config, its layers), and two that
// find its long tag: the list of tags, and a HEAD for that tag.
func TestRequestsOfANewImage(t *testing.T) {
	t.Parallel()
	for _, version := range story.Containerds {
		t.Run(string(version), func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{Containerd: version})
			layers := []node.Layer{{Seed: 1, Size: 1000}, {Seed: 2, Size: 1000}}
			n.Registry.Publish("demo/app", "1.0.0-rev1-build1.1", node.Image{Layers: layers})
			n.WriteFile(story.ConfigFile, "confirmAfter: 0\nimages:\n- "+n.Registry.Ref("demo/app:1.0.0-rev1")+"\n")
			n.Registry.Forget()
			r := n.Agent("run", "--once")
			require.Equal(t, 0, r.Code, r.Stderr)
			agents := n.Registry.Requests()
			assert.Equal(t, 2, agents.Count(http.MethodHead, node.Manifest), "the followed tag and the long one: %+v", agents)
			assert.Equal(t, 1, agents.Count(http.MethodGet, node.Tags))
			assert.Equal(t, 1, agents.Count(http.MethodGet, node.Manifest))
			assert.Equal(t, 1+len(layers)+1, agents.Count(http.MethodGet, node.Blob), "the config, the layers and one of its own")
			assert.Len(t, agents, 1+1+1+len(layers)+1+2)
		})
	}
}
