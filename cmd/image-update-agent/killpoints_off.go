// SPDX-License-Identifier: Apache-2.0

//go:build !killpoints

package main

import "github.com/kubic-project/image-update-agent/agent"

// killpoints does nothing where the tag killpoints is not set.
func killpoints(*agent.Agent) {}
