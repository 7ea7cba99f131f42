// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// The record was lost, and mode auto applies in the first cycle: no release is known to have run well.
func TestPodWithoutARollbackTargetStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		bad := w.Registry.Release(velum, "4.0.0", 2, "2.1")
		w.Node.Crash(bad.Digest, true)
		w.Disk.Lose()
		w.Policy.Auto = true
		w.restart()
		s := w.check()
		assert.Contains(t, s.Reason, "it stays as it is: no other release is known to have run well")
		w.runs("velum.yaml", "velum", bad.Digest)
		assert.Empty(t, w.record().Overrides)
	})
}
