// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// TestHostMainJob runs the main job with the installed service, within the sandbox of its unit.
func TestHostMainJob(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		h, n, port := installed(t, root, node.Options{Containerd: node.Containerd2, Kubelet: true})
		require.Equal(t, "running", h.Boot())

		// The agent renders the system's templates to a pod manifest, which kubelet finds.
		s := hostSays(t, h, "check")
		story.IsCurrent(t, s)
		n.WaitAnswer(port, "4.0.0-rev1-build1.1")
		manifest := n.ReadFile(story.VelumYAML)
		assert.Contains(t, manifest, n.Registry.Ref("demo/velum:4.0.0-rev1"))

		n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.2", node.Image{Layers: []node.Layer{{Seed: 2, Size: 4 << 20}}})
		s = hostSays(t, h, "check")
		require.Equal(t, status.StateStaged, s.State, s.Reason)
		assert.Equal(t, "rebuild", s.Images[0].Change)
		assert.Equal(t, "4.0.0-rev1-build1.1", s.Images[0].Running.Tag)
		grains := h.ReadFile("/etc/salt/grains")
		assert.Contains(t, grains, "roles:\n- admin\nimage_update_available: true\n")
		assert.Contains(t, h.Show(host.Service, "StatusText")["StatusText"], "staged")

		h.AddUser("joe")
		joe := h.Run(host.Command{User: "joe", Argv: []string{"image-update-agent", "status"}})
		assert.Equal(t, 0, joe.Code, joe.Stderr)
		joe = h.Run(host.Command{User: "joe", Argv: []string{"image-update-agent", "apply"}})
		assert.Equal(t, 1, joe.Code, "who is not root sees, and does not act: %s%s", joe.Stdout, joe.Stderr)
		story.Answers(t, port, "4.0.0-rev1-build1.1")

		h.Must("image-update-agent", "apply")
		story.Answers(t, port, "4.0.0-rev1-build1.2")
		s = hostSays(t, h, "status")
		story.IsCurrent(t, s)
		assert.Contains(t, h.ReadFile("/etc/salt/grains"), "image_update_available: false\n")

		n.Registry.Publish("demo/velum", "4.0.0-rev2-build2.1", node.Image{})
		s = hostSays(t, h, "check")
		require.Equal(t, status.StateStaged, s.State, s.Reason)
		assert.Equal(t, manifest, n.ReadFile(story.VelumYAML), "it waits for approval")
		h.Must("image-update-agent", "apply")
		story.Answers(t, port, "4.0.0-rev2-build2.1")
		assert.Contains(t, n.ReadFile(story.VelumYAML), n.Registry.Ref("demo/velum:4.0.0-rev2"))

		is := h.Show(host.Service, "NRestarts", "Result")
		assert.Equal(t, map[string]string{"NRestarts": "0", "Result": "success"}, is, h.Journal(host.Service))
		assert.NotContains(t, h.Journal(host.Service), "level=ERROR")
		hostIsWell(t, h)
	})
}
