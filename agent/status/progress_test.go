// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// TestEveryPhaseOfWorkHasAnActivity: in a phase without one the daemon would look idle.
func TestEveryPhaseOfWorkHasAnActivity(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("progress.go")
	require.NoError(t, err)
	phases := regexp.MustCompile(`(?m)^\tPhase\w+ += "(\w+)"$`).FindAllStringSubmatch(string(source), -1)
	require.Len(t, phases, 13)
	for _, p := range phases {
		_, has := status.Progress{Phase: p[1]}.Activity()
		isEnd := slices.Contains([]string{status.PhaseDone, status.PhaseFailed, status.PhaseInterrupted}, p[1])
		assert.NotEqual(t, isEnd, has, p[1])
	}
}
