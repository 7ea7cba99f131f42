// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
)

// What a person has rolled back in the meantime stays so: an apply that goes on takes
// back no denial that is younger than itself.
func TestAnApplyThatGoesOnTriesNothingAgainThatWasRolledBackMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		defer n.end()
		n.Registry.Release(dex, "4.0.0", 1, "1.2")
		n.pulls(endless)
		answer := n.asks(t)
		applied := make(chan []agent.Outcome, 1)
		go func() {
			out, err := n.Apply(t.Context(), []string{"dex.yaml", "velum.yaml"}, true, nil)
			assert.NoError(t, err)
			applied <- out
		}()
		pass(time.Minute)
		require.NoError(t, n.requests(t)["rollback"]())
		before, _ := n.Node.Container("velum.yaml", "main")
		n.pulls(nil)
		require.NoError(t, n.requests(t)["hold"]())
		require.NoError(t, n.requests(t)["unhold"]())
		<-applied
		<-answer
		n.runs("velum.yaml", "main", before.Digests[0])
		assert.NotNil(t, podOf(n.Status(), "velum.yaml").RolledBack)
	})
}
