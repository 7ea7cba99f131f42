// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Only a followed container of a pod manifest in kubelet's directory must run.
func TestContainersThatNeedNotRunAreNotDown(t *testing.T) {
	t.Parallel()
	pinned := velum + "@sha256:" + strings.Repeat("0", 64)
	for name, c := range map[string]struct {
		change func(w *world)
		state  status.State
	}{
		"one that its template adds": {func(w *world) {
			w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "new="+velum+":4.0.0"))
		}, status.StateStaged},
		"one that follows nothing": {func(w *world) {
			w.Node.SetKubelet(false)
			w.Node.PutPodManifest("other.yaml", rendered("other", "other="+pinned))
		}, status.StateCurrent},
		"one that its template pins": {func(w *world) {
			w.Node.SetKubelet(false)
			w.Node.Restart("velum.yaml", "velum")
			w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+pinned))
		}, status.StateStaged},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Registry.Release(velum, "4.0.0", 1, "1.1")
			w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
			require.Equal(t, status.StateCurrent, w.check().State)
			c.change(w)
			w.check()
			w.Clock.Add(time.Hour)
			s := w.observe()
			assert.Equal(t, c.state, s.State, s.Reason)
		})
	}
}

// notStarted is a node on which kubelet does not start velum.
func notStarted(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.Node.SetKubelet(false)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	require.Equal(t, status.StateApplying, w.check().State)
	return w
}

// What is missed since a moment of a wrong clock is missed since now.
func TestWrongClockDoesNotAgeAMissingContainer(t *testing.T) {
	t.Parallel()
	w := notStarted(t)
	w.Clock.Add(-1000 * time.Hour)
	s := w.observe()
	assert.Equal(t, w.Clock.Now(), image(s, "velum.yaml", "velum").Down.Since)
	assert.Equal(t, status.StateApplying, s.State, s.Reason)
}

// What kubelet says of another pod's container of the same name is of that.
func TestKubeletsReasonIsReportedForItsPodOnly(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]node.Waiting{
		"another pod":       {Namespace: "default", Pod: "other-node1"},
		"another namespace": {Namespace: "kube-system", Pod: "velum-node1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := notStarted(t)
			wait.Container, wait.Reason = "velum", "ErrImagePull"
			w.agent.Readiness = &kubeletSays{waiting: []node.Waiting{wait}}
			s := w.observe()
			assert.Equal(t, status.StateApplying, s.State, s.Reason)
		})
	}
}
