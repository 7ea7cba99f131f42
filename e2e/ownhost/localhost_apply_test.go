// SPDX-License-Identifier: Apache-2.0

package ownhost

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// ownHostOf is what status says of the node's own host for its registry.
func ownHostOf(t *testing.T, n *node.Node, s status.Status) ownhost.RegistryStatus {
	t.Helper()
	require.NotNil(t, s.OwnHost)
	require.Len(t, s.OwnHost.Registries, 1)
	require.Equal(t, n.Registry.Host, s.OwnHost.Registries[0].Registry)
	return s.OwnHost.Registries[0]
}

// With the fallback an apply needs no registry: the own host answers kubelet's pull, also of a container that ends by
// itself. The tag stays followed, and no digest is written into the pod manifest.
func TestApplyWithTheRegistryAway(t *testing.T) {
	t.Parallel()
	n, daemon, port := story.Running(t, "")
	before := n.ReadFile(story.VelumYAML)
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.2")
	require.Equal(t, status.StateStaged, story.Check(t, n).State)
	n.Registry.Down()
	story.Held(t, n, "registry away")

	answered := answerAsOwnHost(t, n)
	story.OwnHostVerb(t, n, 0, "enable", n.Registry.Host, "--write")
	node.Eventually(t, "daemon reads hosts.toml", story.Ready, func() error { // it does once a second
		if story.Check(t, n).OwnHost == nil {
			return errors.New("no own host yet")
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
	own := ownHostOf(t, n, s)
	assert.Equal(t, ownhost.Fallback, own.Position)
	require.Len(t, own.Tags, 1)
	assert.Equal(t, story.ImageOf(t, s, "velum.yaml").Running.Digest, own.Tags[0].Digest)
	assert.NotNil(t, own.AwaySince)
	assert.Contains(t, n.Agent("status").Stdout, "fallback: ready for 1 tag on")
	ours := answered()
	story.Check(t, n)
	assert.Equal(t, ours, answered(), "the agent never asks its own host")

	// A revision makes the pod anew, and needs no registry either.
	n.Registry.Up()
	story.Rel(n, "demo/velum", "4.0.0-rev2-build2.1")
	assert.Equal(t, 0, daemon.Stop().Code)
	daemon = story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0") // it does not leave the registry alone any more
	require.Equal(t, status.StateStaged, story.Check(t, n).State)
	n.Registry.Down()
	story.Apply(t, n, 0, "velum")
	n.WaitAnswer(port, "4.0.0-rev2-build2.1")
	assert.NotContains(t, n.ReadFile(story.VelumYAML), "@sha256")
	assert.Equal(t, 0, daemon.Stop().Code)
}

// With the gate a container that ends by itself starts what was approved, although its tag has moved; and the tag's move
// does not stop an approved apply. A rebuild waits for its approval.
func TestGateStartsWhatWasApproved(t *testing.T) {
	t.Parallel()
	n, daemon, port := story.Running(t, "")
	answerAsOwnHost(t, n)
	story.OwnHostVerb(t, n, 0, "enable", n.Registry.Host, "--gate", "--write")
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.2") // nobody has told the agent
	old := story.Container(t, n)
	n.CRI().Stop("dashboard")
	n.WaitAnswer(port, "4.0.0-rev1-build1.1")
	assert.NotEqual(t, old, story.Container(t, n), "it was started anew")

	s := story.Check(t, n)
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Equal(t, "4.0.0-rev1-build1.2", story.ImageOf(t, s, "velum.yaml").Offered.Tag)
	assert.False(t, story.ImageOf(t, s, "velum.yaml").Adopted)
	n.CRI().Stop("dashboard")
	n.WaitAnswer(port, "4.0.0-rev1-build1.1") // it is staged, and not approved

	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.3")
	n.Registry.Forget()
	story.Apply(t, n, 0, "velum")
	n.WaitAnswer(port, "4.0.0-rev1-build1.2")
	assert.Zero(t, n.Registry.Requests().Of(story.CriAgent).Count("HEAD", node.Manifest), "the registry is not asked at all")
	n.CRI().Stop("dashboard")
	n.WaitAnswer(port, "4.0.0-rev1-build1.2")

	s = story.Check(t, n)
	assert.Equal(t, "4.0.0-rev1-build1.3", story.ImageOf(t, s, "velum.yaml").Offered.Tag, "a rebuild waits: %s", s.Reason)
	assert.Equal(t, ownhost.Gate, ownHostOf(t, n, s).Position)
	assert.Equal(t, 0, daemon.Stop().Code)
}
