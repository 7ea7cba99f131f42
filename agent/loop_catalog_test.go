// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// A publisher's wrong clock must not keep a node from its catalog for ever.
func TestForgetCatalogTakesWhatIsServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := loop(t, 0, 0)
		defer l.end()
		_, err := l.ForgetCatalog(t.Context(), nil)
		require.ErrorIs(t, err, agent.ErrNoCatalog)
	})
	synctest.Test(t, func(t *testing.T) {
		catalog := agenttest.NewCatalog()
		w := newWorld(t)
		w.Catalog = catalog
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
		l := start(t, w, 0, 0)
		defer l.end()
		catalog.Fail(fmt.Errorf("version 3 is older than 4: %w", release.ErrCatalog))
		s, err := l.Check(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, status.StateFailed, s.State)
		catalog.Fail(nil)
		catalog.Publish(velum)
		s, err = l.ForgetCatalog(t.Context(), nil)
		require.NoError(t, err)
		assert.Empty(t, s.Catalog.Error)
		assert.EqualValues(t, 1, s.Catalog.Version)
	})
}
