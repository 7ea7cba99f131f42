// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"time"

	"github.com/opencontainers/go-digest"
)

// maxAhead is how far a catalog may be created after the reader's now: clocks differ.
const maxAhead = 24 * time.Hour

// MaxJump is how far a version, a version tag or a turn may be above the one before: else whoever once had a key, or
// may push, could use up all numbers.
const MaxJump = 1 << 20

// Known is the version that a reader verified last. The zero value: it verified none.
type Known struct {
	Version uint64
	Digest  digest.Digest
}

// Follows checks that a manifest is the catalog's next version for a reader that knows an
// earlier one: name, channel, version and time, in this order.
func (m Manifest) Follows(known Known, d digest.Digest, name, channel string, now time.Time) error {
	switch {
	case m.Name != name:
		return newError(KindName, "published as %s, want %s", m.Name, name)
	case m.Channel != channel:
		return newError(KindChannel, "it is of channel %s, want %s", m.Channel, channel)
	case m.Version < known.Version:
		return newError(KindOlder, "version %d is older than version %d, which was verified before", m.Version, known.Version)
	case m.Version == known.Version && d != known.Digest:
		return newError(KindChanged, "version %d was %s, and is %s now", m.Version, known.Digest, d)
	case known.Version > 0 && m.Version-known.Version >= MaxJump:
		return newError(KindFormat, "version %d is too far above version %d, which was verified before",
			m.Version, known.Version)
	case m.Created.After(now.Add(maxAhead)):
		return newError(KindFuture, "created at %s, which is in the future (now: %s)", formatTime(m.Created), formatTime(now))
	}
	return nil
}
