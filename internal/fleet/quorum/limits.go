// SPDX-License-Identifier: Apache-2.0

package quorum

import "time"

// Limits of data from etcd, API servers, and files.
const (
	maxBody   = 256 << 10 // bytes of an answer; a list of members has some kB
	maxHeader = 16 << 10
	maxParts  = 32      // etcds in pod manifests, members of one, API servers: larger numbers are rejected
	maxURLs   = 8       // that are called per etcd or member
	maxFile   = 1 << 20 // bytes of a certificate, a key, a kubeconfig or a configuration file
	// askTimeout limits one call. A member list and then each member's health fit into observeTimeout.
	askTimeout = 4 * time.Second
	// observeTimeout limits all calls of an observation together.
	observeTimeout = 10 * time.Second
)
