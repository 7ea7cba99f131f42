// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// NextSlot is the first moment after now at which this node polls. Each node
// has its own fixed place in the interval, drawn from its machine id, so that
// a fleet spreads evenly and a site-wide restart changes nothing about it. A
// zero interval has no slot: polling is off.
func NextSlot(now time.Time, interval time.Duration, machineID string) time.Time {
	if interval <= 0 {
		return time.Time{}
	}
	offset := int64(place("poll slot", interval, machineID))
	rounds := floorDiv(now.UnixNano()-offset, int64(interval)) + 1
	return time.Unix(0, offset+rounds*int64(interval)).UTC()
}

// StageDelay is a node's own part of the spread of staging, the same after each
// restart: so long after a poll its pulls begin. 0: there is no spread.
func StageDelay(spread time.Duration, machineID string) time.Duration {
	if spread <= 0 {
		return 0
	}
	return place("stage delay", spread, machineID)
}

// place is a node's own place in a span: for each purpose another one, so that
// the first to poll is not the first to pull.
func place(purpose string, span time.Duration, machineID string) time.Duration {
	sum := sha256.Sum256([]byte("image-update-agent " + purpose + " " + machineID))
	return time.Duration(binary.BigEndian.Uint64(sum[:8]) % uint64(span))
}

// floorDiv rounds down also below zero: a node without a clock wakes in 1970.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
