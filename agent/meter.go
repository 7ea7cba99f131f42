// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/stage"
)

// Meter counts what happens, for numbers that only grow. It is called by the loop
// and by the pulls that run side by side, and must not wait. What it is told
// survives a reload: one is handed from agent to agent.
type Meter interface {
	source.FailureMeter
	stage.StagingMeter
	apply.RestartMeter
	// CycleDone counts a cycle of the loop.
	CycleDone()
}
