// SPDX-License-Identifier: Apache-2.0

package localregistry

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// TestFaultyLocalRegistry checks that pulls from a healthy registry succeed whatever fault the local registry has. As
// the last host it gets no request; as the first it delays a pull at most by the time after which its process is
// killed.
func TestFaultyLocalRegistry(t *testing.T) {
	t.Parallel()
	onEveryContainerd(t, func(t *testing.T, version node.Version) {
		n := node.Start(t, node.Options{Containerd: version})
		own, name := n.LocalRegistry(), n.Registry.Host
		story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
		image := n.Registry.Ref("demo/velum:4.0.0-rev1")
		hosts := story.CertsD + name + "/hosts.toml"
		_, err := n.CRI().Pull(image)
		require.NoError(t, err)
		story.SaveTable(t, n, image)
		table := n.ReadFile(story.LocalRegistryTable)
		faults := map[string]func(){
			"serves":       func() {},
			"crashes":      func() { own.Serve(node.Crashes) },
			"has no table": func() { require.NoError(t, os.Remove(n.Path(story.LocalRegistryTable))) },
			"a torn table": func() { n.WriteFile(story.LocalRegistryTable, table[:len(table)/2]) },
			"is not there": func() { // another address, since other nodes use this one
				closed := fmt.Sprintf("127.0.0.1:%d", n.FreePort())
				n.WriteFile(hosts, strings.ReplaceAll(n.ReadFile(hosts), localregistry.Address, closed))
			},
			"hangs": func() { own.Serve(node.Hangs) },
		}
		for place, put := range map[string]func(*testing.T, *node.Node, ...string){"last": enable, "first": enableFirst} {
			for fault, make := range faults {
				own.Serve(node.Serves)
				n.WriteFile(story.LocalRegistryTable, table)
				n.WriteHosts(name, n.Registry)
				put(t, n, name)
				make()
				own.Forget()
				n.Registry.Forget()
				_, err := n.CRI().Pull(image)
				assert.NoError(t, err, "%s, and %s", place, fault)
				asked, upstream := len(own.Requests()), n.Registry.Requests().Count("HEAD", node.Manifest)
				isAnswered := place == "first" && fault == "serves"
				assert.Equal(t, isAnswered, upstream == 0, "%s, and %s", place, fault)
				assert.Equal(t, place == "first" && fault != "is not there", asked > 0, "%s, and %s", place, fault)
				assert.Equal(t, place == "first" && fault == "hangs", own.Killed() == 1, "%s, and %s", place, fault)
			}
		}
	})
}
