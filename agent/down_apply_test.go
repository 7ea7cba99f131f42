// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/agent/watch"
)

// What was seen to be down while an apply restarted it is no news when the apply has
// shown that it runs.
func TestApplyDoesNotReportItsContainerAsFailed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		defer l.end()
		next := l.Registry.Release(velum, "4.0.0", 1, "1.2")
		_, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		pass(time.Minute)
		states, stop := watched(l)
		l.Node.SetKubelet(false)
		done := make(chan []status.Outcome, 1)
		go func() {
			out, err := l.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()}, nil)
			assert.NoError(t, err)
			done <- out
		}()
		pass(3 * time.Second) // as kubelet and the container's grace may take
		l.Node.SetKubelet(true)
		l.Node.Sync()
		require.Equal(t, status.ResultApplied, (<-done)[0].Result)
		pass(10 * time.Second)
		stop()
		l.runs("velum.yaml", "velum", next.Digest)
		assert.NotContains(t, states(), status.StateFailed)
	})
}

// The same for an apply by mode auto.
func TestAutoApplyDoesNotReportItsContainerAsFailed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		defer l.end()
		a := l.Agent()
		a.Now, a.Events, a.Policy.Auto = l.now, l.Node, true
		require.NoError(t, l.Reconfigure(t.Context(), a, 12*time.Hour))
		pass(time.Minute)
		l.Node.PutTemplate("velum.yaml", podYAML("velum", "one="+velum+":4.0.0", "two="+velum+":4.0.0"))
		l.Node.PutPodManifest("velum.yaml", rendered("velum", "one="+velum+":4.0.0-rev1", "two="+velum+":4.0.0-rev1"))
		var restarts atomic.Bool // from now on, by the apply that nobody asked for
		var stops atomic.Int32
		l.Node.OnStop = func(string) error {
			if !restarts.Load() {
				return nil
			}
			switch stops.Add(1) {
			case 1:
				l.Node.SetKubelet(false)
			case 2:
				slowly(3 * time.Second) // its grace; the first one is down
				l.Node.SetKubelet(true)
			}
			return nil
		}
		_, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		pass(time.Minute)
		next := l.Registry.Release(velum, "4.0.0", 1, "1.2")
		states, stop := watched(l)
		restarts.Store(true)
		pass(13 * time.Hour)
		stop()
		require.Equal(t, int32(2), stops.Load())
		l.runs("velum.yaml", "two", next.Digest)
		assert.NotContains(t, states(), status.StateFailed)
	})
}

// A reload does not start the five minutes again.
func TestUnstartedPodStaysFailedAfterAReload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		defer l.end()
		l.Node.SetKubelet(false)
		l.Node.PutPodManifest("other.yaml", rendered("other", "other="+velum+":4.0.0-rev1"))
		_, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		pass(time.Hour)
		down := image(l.Status(), "other.yaml", "other").Down
		require.NotNil(t, down)
		require.Equal(t, status.StateFailed, l.Status().State)
		a := l.Agent()
		a.Now, a.Events = l.now, l.Node
		require.NoError(t, l.Reconfigure(t.Context(), a, 12*time.Hour))
		assert.Equal(t, status.StateFailed, l.Status().State, l.Status().Reason)
		assert.Equal(t, down.Since, image(l.Status(), "other.yaml", "other").Down.Since)
	})
}

// All clients report the status in the same words.
func TestDownIsReportedAlikeToAllClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Node.SetKubelet(false)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	w.check()
	w.Clock.Add(time.Hour)
	s := w.observe()
	require.Equal(t, "velum.yaml: velum was not started", s.Reason)
	text, err := json.Marshal(s)
	require.NoError(t, err)
	var read status.Status
	require.NoError(t, json.Unmarshal(text, &read))
	assert.Equal(t, "was not started", image(read, "velum.yaml", "velum").Down.String())
}

// Containers of other pods that end or start during an apply do not end the state applying.
func TestEventsDuringAnApplyKeepItsState(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := observed(t)
		defer l.end()
		l.Registry.Release(velum, "4.0.0", 1, "1.2")
		_, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		l.Node.SetKubelet(false)
		go func() {
			for range 5 {
				slowly(3 * time.Second)
				assert.Equal(t, status.StateApplying, l.Status().State, l.Status().Reason)
				l.Node.Tell(watch.RuntimeEvent{})
			}
			l.Node.SetKubelet(true)
			l.Node.Sync()
		}()
		out, err := l.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("velum")}, nil)
		require.NoError(t, err)
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		pass(10 * time.Second)
		assert.Equal(t, status.StateCurrent, l.Status().State, l.Status().Reason)
	})
}
