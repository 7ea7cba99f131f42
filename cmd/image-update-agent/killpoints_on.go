// SPDX-License-Identifier: Apache-2.0

//go:build killpoints

package main

import (
	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
)

// killpoints is for tests that kill the daemon in an apply.
func killpoints(a *agent.Agent) { agenttest.KillPoints(a) }
