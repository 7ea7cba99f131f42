// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

func TestNothingIsAskedBeforeACatalogWasRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Catalog = agenttest.NewCatalog()
	w.Catalog.Fail(&release.SourceError{Repository: agenttest.CatalogName, Host: agenttest.Host, Cause: release.CauseRefused, Err: agenttest.ErrRefused})
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	s := w.check()
	assert.Equal(t, status.StateStale, s.State, s.Reason)
	assert.Zero(t, w.Registry.Counts())
	assert.Empty(t, w.Node.PodManifest("velum.yaml"))
	assert.Equal(t, 1, s.Catalog.Failures)
}

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

func TestFailedCatalogIsAskedAgainAfterItsBackoff(t *testing.T) {
	t.Parallel()
	w, _ := catalogWorld(t)
	w.Catalog.Fail(&release.SourceError{Host: agenttest.Host, Err: agenttest.ErrRefused})
	w.check()
	w.Catalog.Asked()
	w.cycle(source.PollFailed)
	assert.Zero(t, w.Catalog.Asked())
	w.Clock.Add(policy.MaxBackoff)
	w.cycle(source.PollFailed)
	assert.Equal(t, 1, w.Catalog.Asked())
}
