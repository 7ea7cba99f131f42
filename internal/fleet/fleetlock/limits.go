// SPDX-License-Identifier: Apache-2.0

package fleetlock

import "time"

// Limits of data from a lock server.
const (
	maxBody    = 16 << 10 // bytes; an answer has some hundred
	maxHeader  = 16 << 10
	maxHolders = 16  // holders
	maxID      = 128 // bytes of a holder's id
	maxKind    = 64  // bytes of an error's kind
	maxSaid    = 80  // bytes quoted from an invalid answer

	// maxRetry limits a Retry-After.
	maxRetry = time.Hour
	// timeout limits a request, from the name's resolution to the end of the answer.
	timeout = 10 * time.Second

	maxPEM = 1 << 20 // bytes of a certificate, a key, or authorities
)
