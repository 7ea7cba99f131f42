// SPDX-License-Identifier: Apache-2.0

package etcdlock

import "time"

// Limits. The size of an answer is limited by quorum.
const (
	maxHolder = 128 // bytes of the holder's name

	// timeout limits a Lock, and an attempt of an Unlock.
	timeout = 10 * time.Second
	// attempts limits how often a key is read again that somebody has changed since.
	attempts = 5

	// patience is how long Unlock waits for an etcd, and pause the time between two attempts.
	patience = 30 * time.Second
	pause    = time.Second
)
