// SPDX-License-Identifier: Apache-2.0

package kubelease

import "time"

// Limits of data from an API server.
const (
	maxBody   = 256 << 10 // bytes; a Lease has about one kB, a node some ten
	maxHolder = 128       // bytes of the holder's name
	maxReason = 64        // bytes of an error's reason

	// maxRetry limits a Retry-After.
	maxRetry = time.Hour
	// timeout limits a Lock, and an attempt of an Unlock.
	timeout = 10 * time.Second
	// attempts limits how often a Lease is read again that somebody has changed since.
	attempts = 5

	// patience is how long Unlock waits for an API server, and pause the time between two attempts.
	patience = 30 * time.Second
	pause    = time.Second
)
