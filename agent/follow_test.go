// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

func TestTemplateAndConfigurationMayNameTheSameShortTag(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Policy.Images = []release.Reference{{Repository: velum, Tag: "4.0.0"}}
	old := podYAML("velum", "velum="+velum+":4.0.0")
	w.Node.PutPodManifest("velum.yaml", old)
	w.Node.PutTemplate("velum.yaml", old)
	w.check()
	want := w.Node.WaitingFile("velum.yaml")
	require.Contains(t, want, "4.0.0-rev1")
	for range 3 {
		w.poll()
		assert.Equal(t, want, w.Node.WaitingFile("velum.yaml"))
	}
}

func TestOldRefusalDoesNotApplyToANewPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Registry.Retract(velum, "4.0.0-rev1")
	w.Node.PutPodManifest("old.yaml", podYAML("old", "old="+velum+":4.0.0-rev1"))
	w.Policy.Manage = map[string]bool{"old.yaml": true}
	require.Equal(t, status.StateFailed, w.check().State)
	w.Node.PutPodManifest("old.yaml", nil)
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	w.Registry.Release(velum, "4.0.0", 1, "1.2")

	s := w.check()

	assert.Equal(t, status.StateCurrent, s.State, s.Reason)
}
