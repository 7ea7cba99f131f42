// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
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
	span := uint64(interval)
	offset := uint64(place("poll slot", interval, machineID))
	passed := (sinceEpoch(now, span) + span - offset) % span
	return now.Round(0).UTC().Add(time.Duration(span - passed))
}

// sinceEpoch is the time since 1970 modulo span, in nanoseconds, of which 64 bits
// have enough for 292 years only. Before 1970, where a node without a clock wakes,
// it counts from the span's begin as well.
func sinceEpoch(t time.Time, span uint64) uint64 {
	seconds := t.Unix()
	high, low := bits.Mul64(uint64(max(seconds, -seconds)), uint64(time.Second))
	rest := bits.Rem64(high, low, span)
	if seconds < 0 {
		rest = (span - rest) % span
	}
	return (rest + uint64(t.Nanosecond())%span) % span
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

func Earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
