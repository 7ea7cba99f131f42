// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
)

// isCurrent asserts that there is nothing to do. On a node without kubelet, or before kubelet has come to it, what is
// followed is not started yet.
func isCurrent(t require.TestingT, s status.Status) {
	for _, i := range s.Images {
		if s.State == status.StateApplying && i.Down != nil && i.Down.Starting {
			return
		}
	}
	require.Equal(t, status.StateCurrent, s.State, s.Reason)
}

// A container that ends and that nobody starts again is failed, and current again when it is started.
func TestContainerThatEnds(t *testing.T) {
	t.Parallel()
	for _, version := range []node.Version{node.Containerd16, node.Containerd17, node.Containerd2} {
		t.Run("containerd "+string(version), func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{Containerd: version, Kubelet: true})
			port := n.FreePort()
			template(n, port, n.Registry.Ref("demo/velum:__TAG__"))
			rel(n, "demo/velum", "4.0.0-rev1-build1.1")
			cycle(t, n, 0)
			n.WaitAnswer(port, "4.0.0-rev1-build1.1")
			daemon := startDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
			require.Equal(t, status.StateCurrent, check(t, n).State)
			n.Registry.Down()                           // kubelet cannot start it again: its pull policy is Always
			stopped := time.Now().Truncate(time.Second) // status says seconds
			n.CRI().StopContainer(container(t, n))
			s := awaitState(t, n, status.StateFailed)
			t.Logf("failed %s after its end: %s", time.Since(stopped).Truncate(time.Millisecond), s.Reason)
			assert.Contains(t, s.Reason, "velum.yaml: dashboard does not run (exit code ")
			require.NotNil(t, s.Images[0].Down)
			assert.WithinRange(t, s.Images[0].Down.Since, stopped, time.Now())
			assert.Nil(t, s.Images[0].Running)

			n.Registry.Up()
			// kubelet's pause between two pulls has grown for as long as the registry was away, up to 5 minutes; a kubelet
			// that starts has none.
			n.Kubelet.Reconfigure(nil)
			s = awaitState(t, n, status.StateCurrent)
			assert.Nil(t, s.Images[0].Down)
			assert.Equal(t, 0, daemon.Stop().Code)
		})
	}
}

// awaitState asks for the status until it has the state.
func awaitState(t *testing.T, n *node.Node, state status.State) (s status.Status) {
	t.Helper()
	node.Eventually(t, string(state), ready, func() error {
		if s = st(t, n); s.State != state {
			return fmt.Errorf("%s: %s", s.State, s.Reason)
		}
		return nil
	})
	return s
}
