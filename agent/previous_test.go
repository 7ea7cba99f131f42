// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// What the status names is what a rollback returns to.
func TestPreviousIsWhatARollbackReturnsTo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		s := w.observe()
		assert.Nil(t, image(s, "velum.yaml", "velum").Previous)
		assert.False(t, podOf(s, "velum.yaml").CanRollBack, "nothing ran before")
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		_, s = w.apply()
		assert.Equal(t, &status.Named{Tag: "4.0.0-rev1-build1.1", Digest: first.Digest}, image(s, "velum.yaml", "velum").Previous)
		assert.True(t, podOf(s, "velum.yaml").CanRollBack)
		out, s, err := w.agent.Rollback(t.Context(), plan.Named("velum"))
		require.NoError(t, err)
		assert.Equal(t, status.ResultRolledBack, out[0].Result, out[0].Reason)
		w.runs("velum.yaml", "velum", first.Digest)
		assert.Nil(t, image(s, "velum.yaml", "velum").Previous, "the other one is denied")
		assert.False(t, podOf(s, "velum.yaml").CanRollBack)
		out, _, err = w.agent.Rollback(t.Context(), plan.Named("velum"))
		require.NoError(t, err)
		assert.Equal(t, status.ResultNothing, out[0].Result)
	})
}
