// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// TestConfigPathOfSeveralDirectories checks a config_path with several directories. containerd 1.6 and 1.7 read a list;
// containerd from 2.1 on reads it as the name of one directory, and so ignores all hosts.toml files, unless it pulls by
// its client. The agent polls the hosts that kubelet's pulls use, and doctor fails if hosts.toml files are ignored.
func TestConfigPathOfSeveralDirectories(t *testing.T) {
	t.Parallel()
	const plugin1, plugin2 = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images"
	const isList = "config_path is \""
	list := []string{"etc/containerd/certs.d", "etc/docker/certs.d"}
	for name, c := range map[string]struct {
		version  node.Version
		plugin   string
		settings string // settings of the plugin
		path     []string
		why      string // why hosts.toml files are ignored; empty: they are not
	}{
		"1.6":                         {node.Containerd16, plugin1, "", list, ""},
		"1.7":                         {node.Containerd17, plugin1, "", list, ""},
		"1.7 without":                 {node.Containerd17, plugin1, "", []string{}, "containerd runs without a config_path"},
		"2":                           {node.Containerd2, plugin2, "", list, isList},
		"2 without":                   {node.Containerd2, plugin2, "", []string{}, isList}, // its default is a list
		"2 with the client's pull":    {node.Containerd2, plugin2, "use_local_image_pull = true\n", list, ""},
		"2 with a limit of downloads": {node.Containerd2, plugin2, "max_concurrent_downloads = 5\n", list, ""},
	} {
		if !slices.Contains(node.Containerds(), c.version) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{
				Containerd: c.version, ConfigPath: c.path, ImageSettings: c.settings,
			})
			path := ""
			if len(c.path) > 0 {
				path = "/" + strings.Join(c.path, ":/")
			}
			n.WriteFile("etc/containerd/config.toml", fmt.Sprintf(
				"[plugins.%q]\n%s[plugins.%[1]q.registry]\nconfig_path = %[3]q\n", c.plugin, c.settings, path))
			mirror := n.StartRegistry(false)
			for _, r := range []*node.Registry{n.Registry, mirror} {
				r.Publish("demo/velum", "4.0.0-rev1-build1.1", node.Image{})
			}
			n.WriteHosts(n.Registry.Host, mirror)
			story.Template(n, 1, n.Registry.Ref("demo/velum:__TAG__"))

			_, err := n.CRI().Pull(n.Registry.Ref("demo/velum:4.0.0-rev1"))
			require.NoError(t, err)
			kubelets, other := mirror, n.Registry
			if c.why != "" {
				kubelets, other = n.Registry, mirror
			}
			require.NotZero(t, kubelets.Requests().Count("", node.Manifest))
			require.Zero(t, other.Requests().Count("", node.Manifest))
			kubelets.Forget()
			story.IsCurrent(t, story.Cycle(t, n, 0))
			assert.NotZero(t, kubelets.Requests().Of("image-update-agent").Count("", node.Manifest), "polls go where kubelet pulls")
			assert.Zero(t, other.Requests().Count("", node.Manifest))
			if c.why == "" {
				story.Diagnosed(t, story.Diagnose(t, n, 0)["registry hosts"], "ok", " hosts.toml")
				assert.Empty(t, story.St(t, n).Sources[0].HostsIgnored)
				return
			}
			d := story.Diagnose(t, n, 1)["registry hosts"]
			story.Diagnosed(t, d, "failed", c.why, "ignores every hosts.toml and asks the upstream registry",
				"set config_path to one directory ("+n.Path("etc/containerd/certs.d")+")")
			ignored := n.Path("etc/containerd/certs.d/"+n.Registry.Host) + " is ignored: " + c.why
			assert.Contains(t, story.St(t, n).Sources[0].HostsIgnored, ignored)
			assert.Contains(t, n.Agent("status").Stdout, "is ignored: "+c.why)
			n.Registry.Down()
			assert.Contains(t, story.Cycle(t, n, 1).Reason, "is ignored: "+c.why, "an error names it, too")
		})
	}
}
