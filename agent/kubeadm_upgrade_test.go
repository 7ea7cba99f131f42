// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

const scheduler = "registry.example.com/kube-scheduler"

// schedulerYAML returns a pod manifest with kubeadm's labels; kubeadm's new one differs in a flag as well as in the
// image.
func schedulerYAML(tag, flag string) []byte {
	return []byte(`apiVersion: v1
kind: Pod
metadata:
  labels:
    component: kube-scheduler
    tier: control-plane
  name: kube-scheduler
  namespace: kube-system
spec:
  containers:
  - command:
    - kube-scheduler
    - --` + flag + `
    image: ` + scheduler + ":" + tag + `
    imagePullPolicy: IfNotPresent
    name: kube-scheduler
`)
}

// kubeadm changes a file as `kubeadm upgrade` does (cmd/kubeadm/app/phases/upgrade/staticpods.go, upgradeComponent): it
// moves the old one to a backup, then the new one to its place. Calls of the agent come in between.
type kubeadm struct {
	node       *agenttest.Node
	at, gap    int    // the call before which the old file is moved, and the number of calls until the new one is moved
	sync       bool   // kubelet syncs in between
	back       bool   // the upgrade fails, and the old file is moved back
	calls      int    // of the agent
	backup     string // the content of the moved file
	moved, new bool
}

const upgraded = "kube-scheduler.yaml"

// Around makes a call, after kubeadm's changes before it.
func (k *kubeadm) Around(_ string, do func() error) error {
	if k.calls++; k.calls == k.at {
		k.moveOld()
	}
	if k.calls == k.at+k.gap {
		k.moveNew()
	}
	return do()
}

// Asked ignores the agent's questions.
func (k *kubeadm) Asked(string) {}

// moveOld fails if the agent has set the file aside, and so does the upgrade: an admin starts it again.
func (k *kubeadm) moveOld() {
	if k.backup = k.node.PodManifest(upgraded); k.backup == "" {
		return
	}
	k.moved = true
	k.node.PutPodManifest(upgraded, nil)
	if k.sync {
		k.node.Sync()
	}
}

func (k *kubeadm) moveNew() {
	if !k.moved || k.new {
		return
	}
	k.new = true
	to := schedulerYAML("1.35.0-rev1", "v=3")
	if k.back {
		to = []byte(k.backup)
	}
	k.node.PutPodManifest(upgraded, to)
	if k.sync {
		k.node.Sync()
	}
}

// Whenever kubeadm changes the file during an apply, the agent neither loses nor overwrites it, and follows the file
// that it finds.
func TestKubeadmUpgradesDuringAnApply(t *testing.T) {
	for _, rebuild := range []bool{true, false} {
		for _, sync := range []bool{true, false} {
			for _, back := range []bool{false, true} {
				for gap := range 4 {
					run(t, fmt.Sprintf("rebuild %t, sync %t, back %t, gap %d", rebuild, sync, back, gap), func(t *testing.T) {
						at := 1
						for ; upgradeOnce(t, &kubeadm{at: at, gap: gap, sync: sync, back: back}, rebuild); at++ {
						}
						assert.Greater(t, at, 5, "calls of an apply")
					})
				}
			}
		}
	}
}

// upgradeOnce reports whether the apply made that many calls.
func upgradeOnce(t *testing.T, k *kubeadm, rebuild bool) bool {
	t.Helper()
	w := newWorld(t)
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Patch} }
	w.Policy.Manage = map[string]bool{upgraded: true}
	w.Registry.Release(scheduler, "1.34.1", 1, "1.1")
	w.Node.PutPodManifest(upgraded, schedulerYAML("1.34.1-rev1", "v=2"))
	w.check()
	w.Node.Sync()
	w.check()
	next := w.Registry.Release(scheduler, "1.35.0", 1, "1.1")
	if rebuild {
		w.Registry.Release(scheduler, "1.34.1", 1, "1.2")
	} else {
		w.Registry.Release(scheduler, "1.34.2", 1, "1.1")
	}
	require.Equal(t, status.StateStaged, w.check().State)
	k.node = w.Node
	a := w.Agent()
	agenttest.Intercept(a, k)
	_, _, _ = a.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()})
	reached := k.calls >= k.at

	for !k.new { // the apply ended in between, or the upgrade failed and is started again
		if !k.moved {
			k.moveOld()
			require.True(t, k.moved, "call %d: the file is there for kubeadm", k.at)
		}
		k.moveNew()
	}
	w.restart()
	s := w.check()
	for range 3 {
		w.Clock.Add(10 * time.Minute)
		w.Node.Sync()
		s = w.check()
	}
	here := fmt.Sprintf("call %d of %d: %s: %s", k.at, k.calls, s.State, s.Reason)
	require.Empty(t, w.Node.Aside(), here)
	if k.back {
		require.NotEmpty(t, w.Node.PodManifest(upgraded), here)
		require.Contains(t, w.Node.PodManifest(upgraded), "--v=2", here)
	} else {
		require.Equal(t, string(schedulerYAML("1.35.0-rev1", "v=3")), w.Node.PodManifest(upgraded), here)
		w.runs(upgraded, "kube-scheduler", next.Digest)
		require.Equal(t, status.StateCurrent, s.State, here)
		require.NotContains(t, w.Disk.JSON(), `"pending"`, here)
	}
	c, is := w.Node.Container(upgraded, "kube-scheduler")
	require.True(t, is && c.Running, here)
	p, err := w.agent.Plan(t.Context(), source.PollNone)
	require.NoError(t, err, here)
	require.Empty(t, p.Steps, here)
	return reached
}
