// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// nightly is open from two to four, UTC.
func nightly(now time.Time) (open bool, change time.Time) {
	day := now.UTC().Truncate(24 * time.Hour)
	switch two, four := day.Add(2*time.Hour), day.Add(4*time.Hour); {
	case now.Before(two):
		return false, two
	case now.Before(four):
		return true, four
	default:
		return false, two.Add(24 * time.Hour)
	}
}

// at sets the clock to an hour of the next day.
func (w *world) at(hour int) {
	now := w.Clock.Now()
	w.Clock.Add(now.Truncate(24 * time.Hour).Add(24*time.Hour + time.Duration(hour)*time.Hour).Sub(now))
}

// auto has the node apply by itself in the night.
func auto(t *testing.T) (*world, release.Release) {
	t.Helper()
	w, first := running(t)
	w.Policy.Auto, w.Policy.Window = true, nightly
	w.restart()
	return w, first
}

func TestAutoAppliesInsideAWindowOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := auto(t)
		second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.at(1)
		s := w.check()
		w.runs("velum.yaml", "velum", first.Digest)
		assert.Equal(t, status.StateHeld, s.State)
		assert.Contains(t, s.Reason, "window: the next maintenance window opens at 2026-05-02T02:00:00Z")
		opens := status.Hold{
			Name: "window", Reason: "the next maintenance window opens at 2026-05-02T02:00:00Z",
			Until: time.Date(2026, 5, 2, 2, 0, 0, 0, time.UTC),
		}
		assert.Equal(t, opens.Explained(), image(s, "velum.yaml", "velum").Holds[0])
		assert.NotEmpty(t, w.Grain.Last().Updates, "the UI offers it all the same")
		w.Clock.Add(time.Hour)
		s = w.observe()
		w.runs("velum.yaml", "velum", second.Digest)
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.False(t, image(s, "velum.yaml", "velum").Adopted)
		assert.NotContains(t, w.Disk.JSON(), `"approved"`)
		w.idle()
	})
}

func TestAutoWaitsForTheRegistry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := auto(t)
		w.Policy.Window = nil
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.Against = []status.Hold{{Name: "kubelet", Reason: "just started"}}
		w.restart()
		w.check()
		w.Against = nil
		w.Registry.Down(agenttest.ErrRefused)
		w.observe()
		w.runs("velum.yaml", "velum", first.Digest)
	})
}

func TestFreezeHoldsApplyRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Policy.Freeze = time.Date(2026, 5, 3, 0, 0, 0, 0, time.UTC)
		w.restart()
		second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		out, s := w.apply()
		assert.Equal(t, status.ResultHeld, out[0].Result)
		assert.Equal(t, "freeze: nothing is applied before 2026-05-03T00:00:00Z", out[0].Reason)
		assert.Zero(t, s.SchemaVersion)
		w.runs("velum.yaml", "velum", first.Digest)
		w.Clock.Add(48 * time.Hour)
		out, _ = w.apply()
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		w.runs("velum.yaml", "velum", second.Digest)
	})
}

// A failed release waits for a newer one or a request, not for the next window.
func TestAutoDoesNotRetryAFailedApply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := auto(t)
		bad := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.Node.Crash(bad.Digest, true)
		w.at(2)
		s := w.check()
		assert.Equal(t, status.StateFailed, s.State)
		starts := w.Node.Starts("velum.yaml", "velum")
		w.at(2)
		s = w.check()
		assert.Equal(t, status.StateFailed, s.State)
		assert.Equal(t, starts, w.Node.Starts("velum.yaml", "velum"))
		w.runs("velum.yaml", "velum", first.Digest)
		next := w.Registry.Release(velum, "4.0.0", 1, "1.3")
		w.at(2)
		w.check()
		w.runs("velum.yaml", "velum", next.Digest)
	})
}

// A pod that was broken before and stays so is not restarted each night.
func TestAutoDoesNotRetryWithoutARollbackTarget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := auto(t)
		w.Node.Crash(first.Digest, true)
		w.Node.Restart("velum.yaml", "velum")
		bad := w.Registry.Release(velum, "4.0.0", 2, "1.2")
		w.Node.Crash(bad.Digest, true)
		w.at(2)
		s := w.check()
		assert.Equal(t, status.StateFailed, s.State)
		asides := 0
		w.Node.OnAside = func(string) error { asides++; return nil }
		w.at(2)
		s = w.check()
		assert.Equal(t, status.StateFailed, s.State, s.Reason)
		assert.Zero(t, asides)
	})
}

func TestAutoDoesNotApplyTheControlPlane(t *testing.T) {
	for _, pod := range []string{"etcd", "etcd0"} { // etcd0 is the name in Kubernetes' page on high availability
		t.Run(pod, func(t *testing.T) { bubble(t, func(t *testing.T) { autoLeavesMember(t, pod) }) })
	}
}

func autoLeavesMember(t *testing.T, pod string) {
	t.Helper()
	file := pod + ".yaml"
	w := newWorld(t)
	w.Policy.Auto = true
	w.Registry.Release(etcd, "3.4.13", 1, "1.1")
	w.Node.PutTemplate(file, podYAML(pod, "etcd="+etcd+":3.4.13-rev1"))
	w.Node.PutPodManifest(file, rendered(pod, "etcd="+etcd+":3.4.13-rev1"))
	w.check()
	second := w.Registry.Release(etcd, "3.4.13", 1, "1.2")
	s := w.check()
	require.Equal(t, "unmanaged", image(s, file, "etcd").Holds[0].Name, "although it has a template")
	out, _ := w.apply()
	assert.Equal(t, status.ResultHeld, out[0].Result)
	w.Policy.Manage = map[string]bool{file: true}
	w.restart()
	s = w.check()
	assert.Equal(t, status.Explained([]status.Hold{{Name: "control-plane", Reason: pod + " is applied node by node, by a person"}}),
		image(s, file, "etcd").Holds)
	out, _ = w.apply()
	assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
	w.runs(file, "etcd", second.Digest)
}

func TestPodsAreAppliedInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		names := []string{"a", "b", "etcd", "kube-apiserver", "kube-scheduler", "z"}
		w.Policy.Manage = map[string]bool{"etcd.yaml": true, "kube-apiserver.yaml": true}
		w.Policy.Order = []string{"z.yaml", "kube-*.yaml"}
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		for _, n := range names {
			w.Node.PutTemplate(n+".yaml", podYAML(n, "c="+velum+":4.0.0-rev1"))
		}
		w.check()
		w.Registry.Release(velum, "4.0.0", 2, "1.1")
		w.check()
		var order []string
		w.Node.OnAside = func(name string) error { order = append(order, name); return nil }
		out, _ := w.apply()
		assert.False(t, slices.ContainsFunc(out, func(o status.Outcome) bool { return o.Result != status.ResultApplied }), out)
		assert.Equal(t, []string{"z.yaml", "kube-scheduler.yaml", "a.yaml", "b.yaml", "kube-apiserver.yaml", "etcd.yaml"}, order)
	})
}

// The loop wakes when the window opens, and what was begun in it is ended.
func TestLoopAppliesWhenTheWindowOpens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
		w.Policy.Auto, w.Policy.Settle = true, 30*time.Second
		opens := time.Now().Add(3*time.Hour + 7*time.Minute)
		w.Policy.Window = func(now time.Time) (bool, time.Time) {
			if now.Before(opens) {
				return false, opens
			}
			return now.Before(opens.Add(10 * time.Second)), opens.Add(24 * time.Hour)
		}
		l := start(t, w, 12*time.Hour, 0)
		defer l.end()
		_, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		second := l.Registry.Release(velum, "4.0.0", 1, "1.2")
		_, err = l.Check(t.Context(), nil)
		require.NoError(t, err)
		assert.Equal(t, status.StateHeld, l.Status().State, l.Status().Reason)
		pass(time.Until(opens) + 5*time.Second)
		assert.Equal(t, status.StateApplying, l.Status().State)
		pass(30 * time.Second)
		assert.Equal(t, status.StateCurrent, l.Status().State, l.Status().Reason)
		l.runs("velum.yaml", "velum", second.Digest)
	})
}

// A rendered file that is not wanted any more is dropped in the cycle that finds it, also
// where the apply of its pod was held in it.
func TestUnwantedRenderedFileIsDroppedAfterAHeldApply(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Verifier = agenttest.NewVerifier("sha256:ours")
	w.Registry.Release(velum, "4.0.0", 1, "1.1") // unsigned
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	require.Equal(t, status.StateCurrent, w.check().State)
	other := strings.Replace(string(podYAML("velum", "velum="+velum+":4.0.0")), "spec:", "spec:\n  priority: 1", 1)
	w.Node.PutTemplate("velum.yaml", []byte(other))
	require.Equal(t, status.StateStaged, w.observe().State)
	w.Registry.Release(velum, "4.0.0", 1, "1.2") // nobody has asked for it
	w.Node.PutTemplate("new.yaml", podYAML("new", "velum="+velum+":4.0.0-rev1"))
	w.Policy.Auto = true
	w.obey(policy.Rule{Updates: tags.Revision, Signatures: policy.SignaturesRequire})
	s := w.observe()
	assert.Contains(t, s.Reason, "has moved on")
	assert.Empty(t, w.Node.WaitingFile("velum.yaml"))
}
