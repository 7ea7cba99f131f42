// SPDX-License-Identifier: Apache-2.0

package quorum

import "time"

// Bounds of what comes from etcd and API servers, and from files.
const (
	maxBody    = 256 << 10 // bytes of an answer; a list of members has some kB
	maxHeader  = 16 << 10
	maxParts   = 32      // members or servers that are asked
	maxFile    = 1 << 20 // bytes of a certificate, a key or a kubeconfig
	maxSaid    = 3       // lines of an answer that are passed on
	askTimeout = 3 * time.Second
)
