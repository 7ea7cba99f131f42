// SPDX-License-Identifier: Apache-2.0

package localregistry

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// TestKilledBeforeAStopBehindTheGate kills the daemon around its write of the table, before it stops the pod. The local
// registry serves the old digest if the kill came before the write, and the approved one if it came after it. The next
// daemon finishes the apply.
func TestKilledBeforeAStopBehindTheGate(t *testing.T) {
	t.Parallel()
	r := newLocalRegistryRig(t, node.Containerd2)
	enableFirst(t, r.Node, r.Registry.Host)
	p := &r.pods[0]
	old := runningDigest(t, story.St(t, r.Node), *p)
	for _, label := range []string{"apply: table before", "apply: table after"} {
		offered := r.release(p)
		require.Equal(t, status.StateStaged, story.Check(t, r.Node).State)
		r.serves(t, *p, old, offered)
		require.Equal(t, 0, r.daemon.Stop().Code)
		require.NoError(t, os.RemoveAll(r.Path("run/image-update-agent")))
		daemon := r.StartKillable([]string{"IUA_KILL_AT=" + label, "IUA_KILL_LOG=" + r.Path(story.Passed)}, "run")
		r.approve(t, *p)
		require.NotZero(t, daemon.Wait(story.Ready).Signal, label)

		approved, other := offered, old
		if label == "apply: table before" {
			approved, other = old, offered
		}
		r.serves(t, *p, approved, other)
		story.Answers(t, p.port, p.runs)
		r.startDaemon(t)
		p.runs = r.long()
		r.WaitAnswer(p.port, p.runs)
		assert.Equal(t, offered, runningDigest(t, story.AwaitState(t, r.Node, status.StateCurrent), *p), label)
		r.serves(t, *p, offered, old)
		old = offered
	}
}

// approve starts a daemon that applies to a pod and is killed by it.
func (r *localRegistryRig) approve(t *testing.T, p localRegistryPod) {
	t.Helper()
	node.Eventually(t, "daemon listens", story.Ready, func() error { return story.Listens(r.Node) })
	assert.NotZero(t, r.StartAgent("apply", p.name+".yaml").Wait(story.Ready).Code)
}

func runningDigest(t *testing.T, s status.Status, p localRegistryPod) string {
	t.Helper()
	running := story.ImageOf(t, s, p.name+".yaml").Running
	require.NotNil(t, running)
	return running.Digest.String()
}
