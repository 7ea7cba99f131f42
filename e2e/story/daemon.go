// SPDX-License-Identifier: Apache-2.0

package story

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/internal/face/api"
)

// Started returns a node with velum's pod manifest at rev1, and with rev2 published.
func Started(t *testing.T) *node.Node {
	t.Helper()
	n := node.Start(t, node.Options{Containerd: node.Containerd2})
	Template(n, 1, n.Registry.Ref("demo/velum:__TAG__"))
	n.WriteFile(GrainFile, "roles: [admin]\n")
	Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
	s := Cycle(t, n, 0)
	IsCurrent(t, s)
	Rel(n, "demo/velum", "4.0.0-rev2-build1.1")
	return n
}

// StartDaemon starts the daemon and waits until it listens.
func StartDaemon(tb testing.TB, n *node.Node) *node.Process {
	tb.Helper()
	p := n.StartAgent("run")
	node.Eventually(tb, "daemon", Ready, func() error { return Listens(n) })
	return p
}

// Listens is an error while no daemon listens: the file of its socket is there before, and after its end.
func Listens(n *node.Node) error {
	conn, err := net.Dial("unix", n.Path(AgentSocket))
	if err != nil {
		return err
	}
	return conn.Close()
}

// IsCurrent asserts that there is nothing to do. On a node where kubelet does not run yet, followed images have not
// started.
func IsCurrent(t require.TestingT, s status.Status) {
	for _, i := range s.Images {
		if s.State == status.StateApplying && i.Down != nil && i.Down.Starting {
			return
		}
	}
	require.Equal(t, status.StateCurrent, s.State, s.Reason)
}

// AwaitState waits until the status has the state.
func AwaitState(t *testing.T, n *node.Node, state status.State) (s status.Status) {
	t.Helper()
	node.Eventually(t, string(state), Ready, func() error {
		if s = St(t, n); s.State != state {
			return fmt.Errorf("%s: %s", s.State, s.Reason)
		}
		return nil
	})
	return s
}

// StartDaemonWith starts the daemon and waits until it listens and has observed the node once, or is busy with a long
// operation: the first observation writes files, which must not appear as changes in a test's View.
func StartDaemonWith(t *testing.T, n *node.Node, env ...string) *node.Process {
	t.Helper()
	socket := n.Path(AgentSocket)
	require.NoError(t, os.RemoveAll(socket)) // a killed daemon leaves it
	p := n.StartAgentWith(env, "run")
	node.Eventually(t, "daemon", Ready, func() error {
		s, err := api.NewClient(socket).Status(t.Context())
		if err == nil && s.HasReason(status.KindStarting) && s.Progress == nil {
			err = errors.New("has not looked yet")
		}
		return err
	})
	return p
}
