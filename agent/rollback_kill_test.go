// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// After a kill between the write and kubelet's start nothing runs at the next start: the apply caused that.
func TestKillBeforeTheStartStillRollsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.bad(2, "2.1")
		ctx, kill := context.WithCancel(t.Context())
		defer kill()
		w.Node.SetKubelet(false)
		w.agent.Progress = func(p status.Progress) {
			if p.Phase == "waiting" {
				w.Node.EndPod("velum.yaml")
				kill()
			}
		}
		_, _, _ = w.agent.Apply(ctx, agent.ApplyRequest{Which: plan.All()})
		w.restart()
		time.AfterFunc(time.Second, func() { w.Node.SetKubelet(true); w.Node.Sync() })
		w.observe()
		assert.Contains(t, w.Disk.JSON(), `"denied"`)
		w.runs("velum.yaml", "velum", first.Digest)
	})
}
