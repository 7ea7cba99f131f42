// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// dryRun asks for a dry run, and asserts that it leaves record, status and pod manifests alone.
func (n *neighbours) dryRun(t *testing.T, req agent.ApplyRequest) []status.Outcome {
	t.Helper()
	record, files, before := n.Disk.JSON(), n.Node.PodManifest("dex.yaml"), n.Status()
	req.DryRun = true
	out, err := n.Apply(t.Context(), req, nil)
	require.NoError(t, err)
	assert.Equal(t, record, n.Disk.JSON())
	assert.Equal(t, files, n.Node.PodManifest("dex.yaml"))
	assert.Equal(t, before, n.Status())
	return out
}

// A dry run gives what an apply would do, in its order, and what holds the rest.
func TestADryRunSaysWhatAnApplyWouldDo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		n.offer(t)
		_, err := n.Hold(t.Context(), []string{"db.yaml"}, false, "holidays", time.Time{})
		require.NoError(t, err)
		out := n.dryRun(t, agent.ApplyRequest{Which: plan.All()})
		require.Len(t, out, 3)
		assert.Equal(t, "dex.yaml", out[0].PodManifest)
		assert.Equal(t, status.ResultWouldApply, out[0].Result)
		assert.Len(t, out[0].Edits, 1)
		assert.Equal(t, status.ResultHeld, out[1].Result)
		assert.Contains(t, out[1].Reason, "holidays")
		assert.Equal(t, status.ResultNothing, out[2].Result)
		applied, err := n.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("dex.yaml")}, nil)
		require.NoError(t, err)
		assert.Equal(t, status.ResultApplied, applied[0].Result)
	})
}

// With --retry it counts what was rolled back, which stays denied.
func TestADryRunOfARetryAllowsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		out, err := n.Rollback(t.Context(), plan.Named("velum.yaml"), nil)
		require.NoError(t, err)
		require.Equal(t, status.ResultRolledBack, out[0].Result)
		which := plan.Named("velum.yaml")
		assert.Equal(t, status.ResultNothing, n.dryRun(t, agent.ApplyRequest{Which: which})[0].Result)
		assert.Equal(t, status.ResultWouldApply, n.dryRun(t, agent.ApplyRequest{Which: which, Retry: true})[0].Result)
		assert.Equal(t, status.ResultNothing, n.dryRun(t, agent.ApplyRequest{Which: which})[0].Result)
	})
}
