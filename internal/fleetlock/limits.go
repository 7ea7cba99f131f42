// SPDX-License-Identifier: Apache-2.0

package fleetlock

import "time"

// Bounds of what comes from a lock server.
const (
	maxBody    = 16 << 10 // bytes; an answer has some hundred
	maxHeader  = 16 << 10
	maxHolders = 16  // that are named
	maxID      = 128 // bytes of a holder's id
	maxKind    = 64  // bytes of an error's kind
	maxSaid    = 80  // bytes that are quoted of an answer that is none

	// maxRetry bounds a Retry-After.
	maxRetry = time.Hour
	// timeout is for a request, from the name's resolution to the end of the answer.
	timeout = 10 * time.Second

	maxPEM = 1 << 20 // bytes of a certificate, a key, or authorities
)
