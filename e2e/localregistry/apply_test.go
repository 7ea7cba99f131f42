// SPDX-License-Identifier: Apache-2.0

package localregistry

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// localRegistryOf returns the status of the node's local registry for the node's registry.
func localRegistryOf(t *testing.T, n *node.Node, s status.Status) localregistry.RegistryStatus {
	t.Helper()
	require.NotNil(t, s.LocalRegistry)
	require.Len(t, s.LocalRegistry.Registries, 1)
	require.Equal(t, n.Registry.Host, s.LocalRegistry.Registries[0].Registry)
	return s.LocalRegistry.Registries[0]
}

// TestApplyWithTheRegistryAway applies with the local registry as fallback while the registry is away: the local
// registry serves kubelet's pull, also after a container ended by itself. The pod keeps following the tag, and its
// manifest gets no digest.
func TestApplyWithTheRegistryAway(t *testing.T) {
	t.Parallel()
	n, daemon, port := story.Running(t, "")
	before := n.ReadFile(story.VelumYAML)
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.2")
	require.Equal(t, status.StateStaged, story.Check(t, n).State)
	n.Registry.Down()
	story.Held(t, n, "registry does not answer")

	answered := answerAsLocalRegistry(t, n)
	story.LocalRegistryVerb(t, n, 0, "enable", n.Registry.Host, "--write")
	node.Eventually(t, "daemon reads hosts.toml", story.Ready, func() error { // the daemon does so once a second
		if story.Check(t, n).LocalRegistry == nil {
			return errors.New("no local registry yet")
		}
		return nil
	})
	story.Apply(t, n, 0, "velum")
	n.WaitAnswer(port, "4.0.0-rev1-build1.2")
	assert.Equal(t, before, n.ReadFile(story.VelumYAML))
	assert.Positive(t, answered().Served)

	n.CRI().Stop("dashboard")
	n.WaitAnswer(port, "4.0.0-rev1-build1.2")
	s := story.Check(t, n)
	assert.Equal(t, status.StateStale, s.State, s.Reason)
	own := localRegistryOf(t, n, s)
	assert.Equal(t, localregistry.Fallback, own.Position)
	require.Len(t, own.Tags, 1)
	assert.Equal(t, story.ImageOf(t, s, "velum.yaml").Running.Digest, own.Tags[0].Digest)
	assert.NotNil(t, own.AwaySince)
	assert.Contains(t, n.Agent("status").Stdout, "fallback: ready for 1 tag on")
	ours := answered()
	story.Check(t, n)
	assert.Equal(t, ours, answered(), "the agent never asks its local registry")

	// A revision recreates the pod, and does not need the registry either.
	n.Registry.Up()
	story.Rel(n, "demo/velum", "4.0.0-rev2-build2.1")
	assert.Equal(t, 0, daemon.Stop().Code)
	daemon = story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0") // it polls again
	require.Equal(t, status.StateStaged, story.Check(t, n).State)
	n.Registry.Down()
	story.Apply(t, n, 0, "velum")
	n.WaitAnswer(port, "4.0.0-rev2-build2.1")
	assert.NotContains(t, n.ReadFile(story.VelumYAML), "@sha256")
	assert.Equal(t, 0, daemon.Stop().Code)
}

// TestGateStartsTheApprovedRelease uses the local registry as gate: a container that ends by itself restarts with the
// approved image although its tag has moved, and the move does not stop an approved apply. A rebuild waits for its
// approval.
func TestGateStartsTheApprovedRelease(t *testing.T) {
	t.Parallel()
	n, daemon, port := story.Running(t, "")
	answerAsLocalRegistry(t, n)
	story.LocalRegistryVerb(t, n, 0, "enable", n.Registry.Host, "--gate", "--write")
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.2") // the agent does not know it yet
	old := story.Container(t, n)
	n.CRI().Stop("dashboard")
	n.WaitAnswer(port, "4.0.0-rev1-build1.1")
	assert.NotEqual(t, old, story.Container(t, n), "it was started anew")

	s := story.Check(t, n)
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Equal(t, "4.0.0-rev1-build1.2", story.ImageOf(t, s, "velum.yaml").Offered.Tag)
	assert.False(t, story.ImageOf(t, s, "velum.yaml").PickedUp)
	n.CRI().Stop("dashboard")
	n.WaitAnswer(port, "4.0.0-rev1-build1.1") // staged, and not approved

	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.3")
	n.Registry.Forget()
	story.Apply(t, n, 0, "velum")
	n.WaitAnswer(port, "4.0.0-rev1-build1.2")
	assert.Zero(t, n.Registry.Requests().Of(story.CriAgent).Count("HEAD", node.Manifest), "the registry is not asked at all")
	n.CRI().Stop("dashboard")
	n.WaitAnswer(port, "4.0.0-rev1-build1.2")

	s = story.Check(t, n)
	assert.Equal(t, "4.0.0-rev1-build1.3", story.ImageOf(t, s, "velum.yaml").Offered.Tag, "a rebuild waits: %s", s.Reason)
	assert.Equal(t, localregistry.Gate, localRegistryOf(t, n, s).Position)
	assert.Equal(t, 0, daemon.Stop().Code)
}
