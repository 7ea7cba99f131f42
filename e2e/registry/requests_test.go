// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// asked are the requests of a pull, by purpose.
type asked struct{ heads, lists, manifests, blobs int }

func count(all node.Requests) asked {
	return asked{
		all.Count(http.MethodHead, node.Manifest), all.Count(http.MethodGet, node.Tags),
		all.Count(http.MethodGet, node.Manifest), all.Count(http.MethodGet, node.Blob),
	}
}

func (a asked) sum() int { return a.heads + a.lists + a.manifests + a.blobs }

// The agent sends the requests of CRI's pull (a HEAD for the tag, the manifest, the config, the layers), and one for
// the tags of the repository, from which it knows newer releases and the long tag. The manifest is that of the long tag.
func TestRequestsOfStaging(t *testing.T) {
	t.Parallel()
	for _, version := range node.Containerds() {
		t.Run(string(version), func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{Containerd: version})
			own := uint64(1000)
			// Each image has a config, the layer of its program, two layers of the seed, and one of its own.
			publish := func(repository string, seed uint64, build int) string {
				own++
				layers := []node.Layer{{Seed: seed, Size: 1000}, {Seed: seed + 1, Size: 1000}, {Seed: own, Size: 1000}}
				n.Registry.Publish(repository, fmt.Sprintf("1.0.0-rev1-build1.%d", build), node.Image{Layers: layers})
				return n.Registry.Ref(repository + ":1.0.0-rev1")
			}
			staged := func(refs ...string) asked {
				n.WriteFile(story.ConfigFile, "confirmAfter: 0\nimages:\n- "+strings.Join(refs, "\n- ")+"\n")
				n.Registry.Forget()
				r := n.Agent("run", "--once")
				require.Equal(t, 0, r.Code, r.Stderr)
				got := n.Registry.Requests()
				assert.Len(t, got, count(got).sum(), "no others: %+v", got)
				return count(got)
			}
			pulled := func(refs ...string) asked {
				n.Registry.Forget()
				for _, ref := range refs {
					_, err := n.CRI().Pull(ref)
					require.NoError(t, err)
				}
				return count(n.Registry.Requests())
			}
			app := publish("demo/app", 1, 1)
			assert.Equal(t, asked{heads: 1, lists: 1, manifests: 1, blobs: 5}, staged(app), "a new image")
			assert.Equal(t, asked{heads: 1, lists: 1}, staged(app), "an unchanged image; --once lists tags at each call")
			publish("demo/app", 1, 2)
			assert.Equal(t, asked{heads: 1, lists: 1, manifests: 1, blobs: 2}, staged(app), "a moved tag")

			const images = 20
			var set, peers []string
			for i := range images {
				set = append(set, publish(fmt.Sprint("demo/set", i), 10, 1))
				peers = append(peers, publish(fmt.Sprint("demo/peer", i), 20, 1))
			}
			cri := pulled(peers...)
			assert.Equal(t, asked{heads: images, manifests: images, blobs: 2*images + 2}, cri, "CRI")
			want := cri
			want.lists = images
			assert.Equal(t, want, staged(set...), "a set")
			assert.Equal(t, asked{heads: images}, pulled(set...), "CRI after the agent")
		})
	}
}
