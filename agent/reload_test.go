// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A poll that was interrupted has listed only a part, and what it has heard goes with the
// agent that has asked. What is offered by the list of before stays offered.
func TestReloadInAPollTakesNoOfferBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := neighbourhood(t)
		defer n.end()
		second := n.Registry.Release(velum, "4.0.0", 2, "1.1")
		s, err := n.Check(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, second.Digest, image(s, "velum.yaml", "main").Offered.Digest)
		n.Policy.ListEvery = time.Hour
		n.source.repository = dex
		require.NoError(t, n.Reconfigure(t.Context(), n.configured(n.world), 12*time.Hour))
		pass(13 * time.Hour)
		for range 3 { // who does not answer comes last then
			require.NoError(t, n.requests(t)["hold"]())
			synctest.Wait()
		}
		require.NoError(t, n.Reconfigure(t.Context(), n.configured(n.world), 12*time.Hour))
		n.source.repository = ""
		require.NoError(t, n.requests(t)["unhold"]()) // the poll is begun anew
		pass(time.Minute)
		i := image(n.Status(), "velum.yaml", "main")
		require.NotNil(t, i.Offered, n.Status().Reason)
		assert.Equal(t, second.Digest, i.Offered.Digest)
	})
}
