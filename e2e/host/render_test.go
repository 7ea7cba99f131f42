// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// seenByKubelet makes the stub of kubelet record the pod manifests that it finds when it starts.
const seenByKubelet = "[Service]\nExecStartPre=cp -rT /etc/kubernetes/manifests /run/seen\n"

// TestHostBootsAnotherSystem boots a system with other templates while the registry is away. When kubelet starts, it
// already finds the pod manifests of these templates, so no pod has to be started a second time. The same holds when
// that system is rolled back.
func TestHostBootsAnotherSystem(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		h, n, port := installed(t, root, node.Options{Containerd: node.Containerd2})
		story.StubKubelet(h)
		h.DropIn("kubelet.service", seenByKubelet)
		require.Equal(t, "running", h.Boot())
		hostSays(t, h, "check")
		first := n.ReadFile(story.VelumYAML)
		assert.Contains(t, first, n.Registry.Ref("demo/velum:4.0.0-rev1"))
		h.PowerOff()

		n.Registry.Down()
		template := "/usr/share/caasp-container-manifests/manifests/velum.yaml"
		of := story.VelumTemplate(port, n.Registry.Ref("demo/velum:__TAG__"))
		h.WriteFile(template, strings.Replace(of, "# The dashboard.", "# The dashboard of another system.", 1)+
			"    env:\n    - {name: SYSTEM, value: another}\n")
		require.Equal(t, "running", h.Boot())
		seen := h.ReadFile("/run/seen/velum.yaml")
		assert.Contains(t, seen, "SYSTEM")
		assert.Contains(t, seen, n.Registry.Ref("demo/velum:4.0.0-rev1"), "the same image as before")
		assert.Equal(t, seen, n.ReadFile(story.VelumYAML))
		h.PowerOff()

		h.WriteFile(template, of)
		require.Equal(t, "running", h.Boot())
		assert.Equal(t, first, h.ReadFile("/run/seen/velum.yaml"))
		assert.Equal(t, []string{"velum.yaml"}, story.Names(t, n.Manifests))

		// Once kubelet runs, starting the unit again changes nothing.
		const render = "image-update-agent-render.service"
		h.WriteFile(template, story.VelumTemplate(port, n.Registry.Ref("demo/velum:4.0.1-rev1")))
		h.Must("systemctl", "restart", render)
		assert.Equal(t, first, n.ReadFile(story.VelumYAML))
		assert.Contains(t, h.Journal(render), "kubelet.service: has been started since the boot")
	})
}
