// SPDX-License-Identifier: Apache-2.0

package localregistry

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// TestLocalRegistryAmongMirrors starts with an admin's hosts.toml that has mirrors, a CA, a path and comments. With the
// local registry enabled, containerd asks all hosts in order; once it is disabled, the file has its former bytes.
func TestLocalRegistryAmongMirrors(t *testing.T) {
	t.Parallel()
	onEveryContainerd(t, func(t *testing.T, version node.Version) {
		n := node.Start(t, node.Options{Containerd: version})
		mirror, branch := story.GuideMirror(t, n), n.StartRegistry(false)
		own, name := n.LocalRegistry(), n.Registry.Host // unique, since nodes share the address
		hosts := story.CertsD + name + "/hosts.toml"
		text := fmt.Sprintf("# The site's mirrors.\r\nserver = %q # where all comes from\n\n[host.%q]\n"+
			"  capabilities = [ 'pull', \"resolve\" ]\n  override_path = true # nginx has its own\n  ca = %q\n\n\n"+
			"[host.%q]\n\tcapabilities = [\"pull\", \"resolve\"]\n# the end", n.Registry.URL(), mirror.URL()+"/v2/"+story.DocHost, mirror.CA, branch.URL())
		n.WriteFile(hosts, text)
		order := []*node.Registry{mirror, branch, n.Registry}
		image := node.Image{Answer: "one"}
		mirror.Push(story.DocHost+"/demo/velum", image, "4.0.0-rev1")
		branch.Push("demo/velum", image, "4.0.0-rev1")
		n.Registry.Push("demo/velum", image, "4.0.0-rev1")
		ref := n.Registry.Ref("demo/velum:4.0.0-rev1")
		pull := func() {
			t.Helper()
			_, err := n.CRI().Pull(ref)
			require.NoError(t, err)
		}
		pull()
		story.SaveTable(t, n, ref)

		enable(t, n, name)
		for up := range order {
			for _, r := range order {
				r.Forget()
			}
			pull()
			for i, r := range order {
				assert.Equal(t, i == up, r.Requests().Count("HEAD", node.Manifest) > 0, "host %d, without the first %d", i, up)
			}
			assert.Empty(t, own.Requests())
			order[up].Down()
		}
		pull()
		assert.Len(t, own.Requests(), 1, "all others are away")

		assert.NotEqual(t, text, n.ReadFile(hosts))
		enableFirst(t, n, name)
		for _, r := range order {
			r.Up()
			r.Forget()
		}
		pull()
		assert.Len(t, own.Requests(), 2)
		for _, r := range order {
			assert.Empty(t, r.Requests())
		}
		story.LocalRegistryVerb(t, n, 0, "disable", name, "--write")
		assert.Equal(t, text, n.ReadFile(hosts))
		assert.Equal(t, []string{"hosts.toml"}, story.Names(t, n.Path(strings.TrimSuffix(hosts, "/hosts.toml"))))
		pull()
		assert.Len(t, own.Requests(), 2)
	})
}
