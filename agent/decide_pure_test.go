// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/plan"
)

// Two cycles, or a cycle and a plan request, may call Decide with the same arguments at once. The race detector fails
// this test if Decide or AtBoot writes to them.
func TestDecideIsPure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Node.SetKubelet(true)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Registry.Release(mariadb, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "db="+mariadb+":4.0.0"))
	w.Node.PutPodManifest("db.yaml", podYAML("db", "db="+mariadb+":4.0.0-rev1"))
	w.check()
	w.publish(2, "1.1")
	inv, offers, rec, policy := w.agent.Arguments(t.Context())
	want := plan.Decide(inv, offers, rec, policy, w.Clock.Now())
	require.NotEmpty(t, want.Pods)
	atBoot := plan.AtBoot(inv, rec, policy, w.Clock.Now())
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			assert.Equal(t, want, plan.Decide(inv, offers, rec, policy, w.Clock.Now()))
			assert.Equal(t, atBoot, plan.AtBoot(inv, rec, policy, w.Clock.Now()))
		})
	}
	group.Wait()
}
