// SPDX-License-Identifier: Apache-2.0

package kured

import "time"

// Limits of data from an API server.
const (
	maxBody  = 2 << 20 // bytes; a DaemonSet has at most 1.5 MiB
	maxName  = 128     // bytes of a node's name
	maxNodes = 8       // that are named

	timeout = 10 * time.Second
)
