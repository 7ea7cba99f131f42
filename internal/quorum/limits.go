// SPDX-License-Identifier: Apache-2.0

package quorum

import "time"

// Bounds of what comes from etcd and API servers, and from files.
const (
	maxBody     = 256 << 10 // bytes of an answer; a list of members has some kB
	maxHeader   = 16 << 10
	maxParts    = 32      // etcds that pod manifests name, members of one, API servers: more are not understood
	maxURLs     = 8       // of one etcd or member that are asked
	maxFile     = 1 << 20 // bytes of a certificate, a key, a kubeconfig or a configuration file
	maxCommands = 64      // of the script of a shell
	// askTimeout is for one question. A list of members and then the health of each fit into observeTimeout.
	askTimeout = 4 * time.Second
	// observeTimeout is for all questions of an observation together.
	observeTimeout = 10 * time.Second
)
