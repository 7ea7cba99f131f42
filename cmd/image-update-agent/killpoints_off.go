// SPDX-License-Identifier: Apache-2.0

//go:build !killpoints

package main

import "github.com/kubic-project/image-update-agent/agent"

// killpoints is for tests, which build with the tag killpoints.
func killpoints(*agent.Agent) {}
