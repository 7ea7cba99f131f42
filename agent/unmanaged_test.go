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

// A newer release is staged for an unmanaged pod manifest: status, plan and apply report the same.
func TestUnmanagedPodIsReportedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Patch} }
	w.Registry.Release(etcd, "3.4.13", 1, "1.1")
	w.Node.PutPodManifest("etcd.yaml", podYAML("etcd", "etcd="+etcd+":3.4.13"))
	assert.Equal(t, status.StateCurrent, w.check().State, "that it is unmanaged alone is no news")
	w.Registry.Release(etcd, "3.4.14", 1, "1.1")

	s := w.check()

	const reason = "unmanaged: etcd.yaml has no template and is not listed under manage"
	assert.Equal(t, status.StateHeld, s.State)
	assert.Equal(t, "etcd.yaml: "+reason, s.Reason)
	plan, err := w.agent.Plan(t.Context(), source.PollNone)
	require.NoError(t, err)
	assert.Equal(t, status.ResultHeld, plan.Pods[0].Standing().Result)
	assert.Equal(t, reason, plan.Pods[0].Standing().Reason)
	out, _ := w.apply()
	assert.Equal(t, status.ResultHeld, out[0].Result)
	assert.Equal(t, reason, out[0].Reason)

	// What can be applied beside it is not hidden by it.
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0-rev1"))
	w.check()
	w.Node.Sync()
	w.Registry.Release(velum, "4.0.0", 1, "1.2")
	s = w.check()
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Equal(t, "waiting for approval: velum.yaml (rebuild)", s.Reason)
}
