// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// Without systemd, render writes as long as no static pod runs; after that the daemon offers the change.
func TestRenderWithoutSystemd(t *testing.T) {
	t.Parallel()
	for _, version := range node.Containerds() {
		t.Run("containerd "+string(version), func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{Containerd: version, Kubelet: true})
			port := n.FreePort()
			story.Template(n, port, n.Registry.Ref("demo/velum:4.0.0-rev1"))
			story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
			r := n.Agent("render")
			require.Equal(t, 0, r.Code, r.Stderr)
			assert.Equal(t, "velum.yaml written: its template is new\n", r.Stdout)
			n.WaitAnswer(port, "4.0.0-rev1-build1.1")

			story.Rel(n, "demo/velum", "4.0.1-rev1-build1.1")
			story.Template(n, port, n.Registry.Ref("demo/velum:4.0.1-rev1"))
			before := n.ReadFile(story.VelumYAML)
			r = n.Agent("render")
			assert.Equal(t, 4, r.Code)
			assert.Contains(t, r.Stderr, "systemd did not boot this system, and dashboard of the static pod velum-node1 is running")
			assert.Equal(t, before, n.ReadFile(story.VelumYAML))

			n.Kubelet.Stop()
			n.CRI().Stop("dashboard")
			r = n.Agent("render")
			require.Equal(t, 0, r.Code, r.Stderr)
			assert.Contains(t, r.Stdout, "velum.yaml written: ")
			n.Kubelet.Start()
			n.WaitAnswer(port, "4.0.1-rev1-build1.1")
		})
	}
}
