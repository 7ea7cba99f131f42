// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// After a power cut with the registry away kubelet starts no pod that it has to pull. The node is never current: status
// shows the missing containers, since when, and why, first from CRI and then from kubelet.
func TestStatusAfterAPowerCutWithoutTheRegistry(t *testing.T) {
	t.Parallel()
	for _, version := range node.Containerds() {
		t.Run("containerd "+string(version), func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{Containerd: version, Kubelet: true})
			n.WriteFile(story.ConfigFile, fmt.Sprintf("kubelet: {pods: \"http://127.0.0.1:%d/pods\"}\n", n.Kubelet.Port))
			port := n.FreePort()
			story.Template(n, port, n.Registry.Ref("demo/velum:__TAG__"))
			story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
			story.Cycle(t, n, 0)
			n.WaitAnswer(port, "4.0.0-rev1-build1.1")
			daemon := story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
			require.Equal(t, status.StateCurrent, story.Check(t, n).State)
			daemon.Stop()

			n.Registry.Down()
			cut := time.Now()
			n.PowerOff()
			n.Containerd.Start()
			s := story.St(t, n)
			assert.Equal(t, status.StateUnchecked, s.State, "no daemon has observed the node since")
			assert.Contains(t, s.Reason, "the node was booted after")
			assert.Nil(t, s.Images[0].Running)
			assert.Contains(t, n.Agent("status").Stdout, "unknown (follows 4.0.0-rev1)")

			story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
			s = awaitNotCurrent(t, n, func(s status.Status) bool { return s.State == status.StateFailed })
			assert.Contains(t, s.Reason, "velum.yaml: dashboard is not running (exit code 255)")
			n.Kubelet.Start()
			s = awaitNotCurrent(t, n, func(s status.Status) bool {
				return s.Images[0].Down != nil && (s.Images[0].Down.Reason == "ErrImagePull" || s.Images[0].Down.Reason == "ImagePullBackOff")
			})
			assert.Equal(t, status.StateFailed, s.State)
			assert.Contains(t, s.Reason, n.Registry.Host, "kubelet names the registry")
			assert.Contains(t, s.Reason, "velum.yaml: dashboard is not running (exit code 255): ")
			assert.Nil(t, s.Images[0].Running)
			assert.WithinRange(t, s.Images[0].Down.Since, cut, time.Now())
			assert.Equal(t, s.Images[0].Down.Since.UTC(), s.Reasons[0].Since)
		})
	}
}

// awaitNotCurrent queries the status until wanted accepts it, and asserts that it is not current before.
func awaitNotCurrent(t *testing.T, n *node.Node, wanted func(status.Status) bool) (s status.Status) {
	t.Helper()
	node.Eventually(t, "another state", story.Ready, func() error {
		s = story.St(t, n)
		require.NotEqual(t, status.StateCurrent, s.State, s.Reason)
		if !wanted(s) {
			return fmt.Errorf("%s: %s", s.State, s.Reason)
		}
		return nil
	})
	return s
}
