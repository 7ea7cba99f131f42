// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// rke2Etcd returns etcd's pod manifest as RKE2 writes it (its pkg/podtemplate).
func rke2Etcd(image string) []byte {
	return []byte(`apiVersion: v1
kind: Pod
metadata:
  annotations:
    etcd.k3s.io/initial: '{}'
  labels:
    component: etcd
    tier: control-plane
  name: etcd
  namespace: kube-system
  uid: 0a1b2c3d4e5f
spec:
  containers:
  - command:
    - etcd
    image: ` + image + `
    imagePullPolicy: IfNotPresent
    name: etcd
  hostNetwork: true
status: {}
`)
}

// onRKE2 returns a node whose etcd was written by RKE2 and has a patch release.
func onRKE2(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Major} }
	w.Policy.Owned = map[string]string{"etcd.yaml": "rke2"}
	w.Registry.Release(etcd, "3.4.13", 1, "1.1")
	w.Node.PutPodManifest("etcd.yaml", rke2Etcd(etcd+":3.4.13"))
	w.check()
	w.Node.Sync()
	require.Equal(t, status.StateCurrent, w.check().State)
	return w
}

// RKE2 rewrites its pods at each start, so an edit would not last: newer releases are only shown, even if the file is
// listed, and for every size of change.
func TestDistributionPodsAreShownAndNeverWritten(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{"etcd.yaml": true}
	for name, edit := range map[string]func(*world){
		"as it is":          func(*world) {},
		"listed":            func(w *world) { w.Policy.Manage = listed },
		"in mode auto":      func(w *world) { w.Policy.Auto, w.Policy.Manage = true, listed },
		"a template, too":   func(w *world) { w.Node.PutTemplate("etcd.yaml", rke2Etcd(etcd+":3.5.0")) },
		"listed, as Always": func(w *world) { w.Policy.Manage, w.Policy.ManagedPullPolicy = listed, "Always" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := onRKE2(t)
			edit(w)
			was := w.Node.PodManifest("etcd.yaml")
			newer := w.Registry.Release(etcd, "4.0.0", 1, "1.1")
			w.Registry.Release(etcd, "3.5.0", 1, "1.1")
			w.restart()

			s := w.check()

			const reason = "distribution: rke2 writes etcd.yaml itself at each start"
			assert.Equal(t, status.StateCurrent, s.State, "an admin of the agent can do nothing about it: %s", s.Reason)
			require.Len(t, podOf(s, "etcd.yaml").Holds, 1)
			assert.Equal(t, status.HoldDistribution, podOf(s, "etcd.yaml").Holds[0].Name)
			assert.Empty(t, w.Grain.Last().Updates)
			assert.False(t, w.Node.Pinned(etcd, newer.Digest), "what is never applied is not pulled")
			out, _ := w.apply()
			assert.Empty(t, out, "an apply of everything does not end as held")
			out, _ = w.apply("etcd")
			assert.Equal(t, status.ResultHeld, out[0].Result)
			assert.Equal(t, reason, out[0].Reason)
			assert.Empty(t, w.boots(), "and the boot leaves it alone")
			assert.Equal(t, was, w.Node.PodManifest("etcd.yaml"))
			w.Node.Sync()
			plan, err := w.agent.Plan(t.Context(), source.PollNone)
			require.NoError(t, err)
			assert.Empty(t, plan.Steps)
		})
	}
}

func TestNewerReleaseForADistributionPodIsShown(t *testing.T) {
	t.Parallel()
	w := onRKE2(t)
	newer := w.Registry.Release(etcd, "4.0.0", 1, "1.1")

	s := w.check()

	i := image(s, "etcd.yaml", "etcd")
	require.NotNil(t, i.Offered, "not refused as a control plane of kubeadm, which would be told to use kubeadm upgrade")
	assert.Equal(t, newer.Digest, i.Offered.Digest)
	assert.False(t, i.Staged)
	assert.Equal(t, "major", podOf(s, "etcd.yaml").Change)
}

// RKE2 is upgraded and writes etcd's pod with another image: the agent follows it and updates other pods as on any
// node.
func TestOtherPodsAreUpdatedOnRKE2(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := onRKE2(t)
		first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Node.PutPodManifest("lb.yaml", podYAML("lb", "lb="+velum+":4.0.0-rev1"))
		w.Policy.Manage = map[string]bool{"lb.yaml": true}
		w.restart()
		w.check()
		w.Node.Sync()
		w.check()
		w.runs("lb.yaml", "lb", first.Digest)
		second := w.Registry.Release(velum, "4.0.0", 2, "1.1")
		w.Registry.Release(etcd, "3.4.14", 1, "1.1")
		assert.Equal(t, status.StateStaged, w.check().State)
		w.Node.PutPodManifest("etcd.yaml", rke2Etcd(etcd+":3.4.14"))
		w.Node.Sync()

		out, s := w.apply("velum")

		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		w.runs("lb.yaml", "lb", second.Digest)
		assert.Equal(t, string(rke2Etcd(etcd+":3.4.14")), w.Node.PodManifest("etcd.yaml"))
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	})
}

// The record is from a time when the agent wrote the file and was about to roll it back: the agent does not write over
// RKE2's file.
func TestOldRecordDoesNotOverwriteDistributionPods(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Policy.Manage = map[string]bool{"etcd.yaml": true}
		first := w.Registry.Release(etcd, "3.4.13", 1, "1.1")
		w.Node.PutPodManifest("etcd.yaml", rke2Etcd(etcd+":3.4.13"))
		w.check()
		w.Node.Sync()
		w.check()
		w.Registry.Release(etcd, "3.4.13", 1, "1.2")
		w.check()
		out, _ := w.apply()
		require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		out, _ = w.rollback("etcd")
		require.Equal(t, status.ResultRolledBack, out[0].Result, out[0].Reason)
		w.runs("etcd.yaml", "etcd", first.Digest)

		w.Policy.Owned = map[string]string{"etcd.yaml": "rke2"}
		w.Node.PutPodManifest("etcd.yaml", rke2Etcd(etcd+":3.4.13")) // RKE2 has started
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
		w.restart()
		w.check()
		w.boots()
		w.check()
		out, _ = w.rollback("etcd")
		assert.NotEqual(t, status.ResultRolledBack, out[0].Result)
		assert.Equal(t, string(rke2Etcd(etcd+":3.4.13")), w.Node.PodManifest("etcd.yaml"))
	})
}
