// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
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

// auto returns a node that applies automatically at night.
func auto(t *testing.T) (*world, release.Release) {
	t.Helper()
	w, first := running(t)
	w.Policy.Auto, w.Policy.Window = true, nightly
	w.restart()
	return w, first
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

func TestAutoDoesNotApplyTheControlPlane(t *testing.T) {
	for _, pod := range []string{"etcd", "etcd0"} { // the name in Kubernetes' page on high availability
		run(t, pod, func(t *testing.T) { autoLeavesMember(t, pod) })
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
	assert.Equal(t, status.Explained([]status.Hold{{Name: "control-plane", Reason: pod + " is applied by hand, node by node"}}),
		image(s, file, "etcd").Holds)
	out, _ = w.apply()
	assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
	w.runs(file, "etcd", second.Digest)
}

// The loop wakes when the window opens, and finishes after the window what it began within it.
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
		l.checks()
		second := l.Registry.Release(velum, "4.0.0", 1, "1.2")
		l.checks()
		assert.Equal(t, status.StateHeld, l.Status().State, l.Status().Reason)
		pass(time.Until(opens) + 5*time.Second)
		assert.Equal(t, status.StateApplying, l.Status().State)
		pass(30 * time.Second)
		assert.Equal(t, status.StateCurrent, l.Status().State, l.Status().Reason)
		l.runs("velum.yaml", "velum", second.Digest)
	})
}

// A rendered file that is no longer wanted is removed in the cycle that finds it, even if that cycle held the apply of
// its pod.
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
	w.Registry.Release(velum, "4.0.0", 1, "1.2") // not yet found by a poll
	w.Node.PutTemplate("new.yaml", podYAML("new", "velum="+velum+":4.0.0-rev1"))
	w.Policy.Auto = true
	w.obey(policy.Rule{Updates: tags.Revision, Signatures: policy.SignaturesRequire})
	s := w.observe()
	assert.Contains(t, s.Reason, "has moved")
	assert.Empty(t, w.Node.WaitingFile("velum.yaml"))
}

// controlPlane returns a node that runs an API server of 1.34, two of its clients and another pod. All of them but one
// client are offered the next minor version.
func controlPlane(t *testing.T, auto bool) (*world, map[string]release.Release) {
	t.Helper()
	w := newWorld(t)
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Minor} }
	w.Policy.Manage = map[string]bool{"kube-apiserver.yaml": true}
	w.Policy.Auto = auto
	versions := map[string]string{
		"kube-apiserver": "1.35.0", "kube-controller-manager": "1.34.1", "kube-scheduler": "1.35.0", "mariadb": "1.35.0",
	}
	for name := range versions {
		repository := "registry.suse.com/caasp/v4/" + name
		w.Registry.Release(repository, "1.34.0", 1, "1.1")
		w.Node.PutTemplate(name+".yaml", podYAML(name, "beside="+velum+":4.0.0-rev1", "main="+repository+":1.34.0"))
		w.Node.PutPodManifest(name+".yaml", rendered(name, "beside="+velum+":4.0.0-rev1", "main="+repository+":1.34.0-rev1"))
	}
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.Sync()
	s := w.check()
	require.Equal(t, status.StateCurrent, s.State, s.Reason)
	next := map[string]release.Release{}
	for name, version := range versions {
		next[name] = w.Registry.Release("registry.suse.com/caasp/v4/"+name, version, 1, "1.1")
	}
	return w, next
}

// Clients wait for an API server that did not come up, but not for other pods.
func TestClientIsNotAppliedAfterAFailedAPIServer(t *testing.T) {
	t.Parallel()
	all := []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "mariadb"}
	for fails, held := range map[string]string{"kube-apiserver": "kube-scheduler", "mariadb": ""} {
		run(t, fails, func(t *testing.T) {
			w, next := controlPlane(t, false)
			s := w.check()
			require.Equal(t, status.StateStaged, s.State, s.Reason)
			w.Node.Crash(next[fails].Digest, true)
			out, _ := w.apply()
			want := []status.Result{}
			for _, name := range all {
				switch name {
				case fails:
					want = append(want, status.ResultFailed)
				case held:
					want = append(want, status.ResultHeld)
				default:
					want = append(want, status.ResultApplied)
				}
			}
			got := []status.Result{}
			for _, o := range out {
				got = append(got, o.Result)
			}
			assert.Equal(t, want, got)
		})
	}
}
