// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

func TestCatalogThatIsNotRefreshed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err   error
		state status.State
	}{
		"away":     {&release.SourceError{Host: agenttest.Host, Err: agenttest.ErrRefused}, status.StateStale},
		"gone":     {fmt.Errorf("catalog: %w", release.ErrNotFound), status.StateFailed},
		"unsigned": {fmt.Errorf("catalog: %w", release.ErrUnsigned), status.StateStale},
		"forged":   {fmt.Errorf("catalog: %w", release.ErrForged), status.StateFailed},
		"refused":  {fmt.Errorf("version 3 is older than 4: %w", release.ErrCatalog), status.StateFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, first := catalogWorld(t)
			w.promote(w.Registry.Release(velum, "4.0.0", 1, "1.2"))
			w.check()
			w.Catalog.Fail(c.err)

			s := w.check()

			assert.Equal(t, c.state, s.State, s.Reason)
			assert.NotNil(t, image(s, "velum.yaml", "velum").Offered, "the last verified catalog serves")
			assert.EqualValues(t, 2, s.Catalog.Version)
			assert.Contains(t, s.Catalog.Error, c.err.Error())
			require.NotNil(t, s.Catalog.LastSuccess)
			w.runs("velum.yaml", "velum", first.Digest)
			w.restart()
			assert.Equal(t, c.state, w.observe().State, "after a restart")
			w.Catalog.Fail(nil)
			assert.Equal(t, status.StateStaged, w.check().State)
		})
	}
}
