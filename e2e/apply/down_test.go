// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// A container that ends and is not restarted is failed, and the node is current again when it starts.
func TestContainerThatEnds(t *testing.T) {
	t.Parallel()
	for _, version := range node.Containerds() {
		t.Run("containerd "+string(version), func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{Containerd: version, Kubelet: true})
			port := n.FreePort()
			story.Template(n, port, n.Registry.Ref("demo/velum:__TAG__"))
			story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
			story.Cycle(t, n, 0)
			n.WaitAnswer(port, "4.0.0-rev1-build1.1")
			daemon := story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
			require.Equal(t, status.StateCurrent, story.Check(t, n).State)
			n.Registry.Down()                           // kubelet cannot start it again: its pull policy is Always
			stopped := time.Now().Truncate(time.Second) // status has whole seconds
			n.CRI().StopContainer(story.Container(t, n))
			s := story.AwaitState(t, n, status.StateFailed)
			t.Logf("failed %s after its end: %s", time.Since(stopped).Truncate(time.Millisecond), s.Reason)
			assert.Contains(t, s.Reason, "velum.yaml: dashboard is not running (exit code ")
			require.NotNil(t, s.Images[0].Down)
			assert.WithinRange(t, s.Images[0].Down.Since, stopped, time.Now())
			assert.Nil(t, s.Images[0].Running)

			n.Registry.Up()
			// kubelet's back-off between two pulls has grown while the registry was away, up to 5 minutes; a restarted
			// kubelet has none.
			n.Kubelet.Reconfigure(nil)
			s = story.AwaitState(t, n, status.StateCurrent)
			assert.Nil(t, s.Images[0].Down)
			assert.Equal(t, 0, daemon.Stop().Code)
		})
	}
}
