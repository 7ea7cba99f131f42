// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// A pod written by another program is shown as running because of containerd's start event: the next observation
// without an event comes after ten minutes, longer than the test waits.
func TestPodOfAnotherProgramIsShownAtItsStart(t *testing.T) {
	t.Parallel()
	for _, version := range node.Containerds() {
		t.Run("containerd "+string(version), func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{Containerd: version, Kubelet: true})
			story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
			daemon := story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
			require.Empty(t, story.Check(t, n).Images)
			text := story.VelumTemplate(n.FreePort(), n.Registry.Ref("demo/velum:4.0.0-rev1"))
			require.NoError(t, os.WriteFile(filepath.Join(n.Manifests, "velum.yaml"), []byte(text), 0o600))
			node.Eventually(t, "the pod is shown", story.Ready, func() error {
				images := story.St(t, n).Images
				if len(images) == 0 || images[0].Running == nil || images[0].Down != nil {
					return fmt.Errorf("%+v", images)
				}
				return nil
			})
			assert.Equal(t, 0, daemon.Stop().Code)
		})
	}
}

// The history of an apply has its approver, also in the next daemon, and the log has it as well.
func TestHistoryNamesWhoAppliedOverTheSocket(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2, Kubelet: true})
	port := n.FreePort()
	story.Template(n, port, n.Registry.Ref("demo/velum:__TAG__"))
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
	story.Cycle(t, n, 0)
	n.WaitAnswer(port, "4.0.0-rev1-build1.1")
	daemon := story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.2")
	require.Equal(t, status.StateStaged, story.Check(t, n).State)
	story.Apply(t, n, 0, "velum")
	s := story.St(t, n)
	require.NotNil(t, s.Images[0].Previous)
	assert.Equal(t, "4.0.0-rev1-build1.1", s.Images[0].Previous.Tag)
	assert.True(t, story.PodOf(t, s, "velum.yaml").CanRollBack)
	require.Equal(t, 0, daemon.Stop().Code)
	log, err := os.ReadFile(daemon.Stderr)
	require.NoError(t, err)
	assert.Contains(t, string(log), `msg=approved file=velum.yaml change=rebuild by="root (uid 0, socket)"`)
	assert.Equal(t, 1, strings.Count(string(log), "msg=polled "), "one line for the one poll: %s", log)

	daemon = story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	var past []status.HistoryEntry
	require.NoError(t, json.Unmarshal([]byte(n.Agent("history", "--output", "json").Stdout), &past))
	require.Len(t, past, 1)
	assert.Equal(t, status.ResultApplied, past[0].Result)
	assert.Equal(t, "dashboard", past[0].Container)
	assert.Equal(t, "4.0.0-rev1-build1.1", past[0].From)
	assert.Equal(t, "4.0.0-rev1-build1.2", past[0].To)
	assert.Equal(t, status.Actor{Kind: status.ByPerson, Via: status.ViaSocket, UID: new(uint32(0)), User: "root"}, past[0].By)
	assert.Contains(t, n.Agent("history").Stdout, "applied: velum.yaml dashboard\n")
	assert.Equal(t, 0, daemon.Stop().Code)
}
