// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"encoding/json"
	"time"
)

// maxLogPart bounds a part of a log, in bytes, unpacked. An op has a place in it, see MaxOp.
const maxLogPart = 4 << 20

// Entry is an op as the log of its channel keeps it when the op itself was pruned. Of its releases it has the tag, the
// digest, the set, the rollout, the withdrawal and the advisory.
type Entry struct {
	Op

	At      time.Time `json:"at"`      // when the publisher asked for it, by its clock
	Version uint64    `json:"version"` // the first version that has the op
	// Published is when that version was made, by the clock of who published it; zero: an older publisher did.
	Published time.Time `json:"published,omitzero"`
	// Key is the fingerprint of a key that signed the op, and Keys are all, if several did; empty: none did, as for an op
	// that the signers of the version asked for, or no publisher has checked it.
	Key  string   `json:"key,omitempty"`
	Keys []string `json:"keys,omitempty"`
}

// NewEntry returns the entry of an op that a version folds.
func NewEntry(op Op, version uint64, published time.Time) Entry {
	changes := make([]Change, 0, len(op.Changes))
	for _, c := range op.Changes {
		r := c.Release
		changes = append(changes, Change{Image: c.Image, Release: Release{
			Tag: r.Tag, Digest: r.Digest, Set: r.Set, Rollout: r.Rollout, Withdrawn: r.Withdrawn,
			Advisory: r.Advisory,
		}})
	}
	op.Changes, op.Sets = changes, nil
	e := Entry{Op: op, At: op.At(), Version: version, Published: published}
	if len(op.SignedBy) > 0 {
		e.Key = op.SignedBy[0]
	}
	if len(op.SignedBy) > 1 {
		e.Keys = op.SignedBy
	}
	return e
}

// Log is a part of a log before it is packed: entries as JSON, one in a line.
type Log []byte

// NewLog returns the parts that entries fill.
func NewLog(entries ...Entry) ([]Log, error) {
	var parts []Log
	for _, e := range entries {
		line, err := json.Marshal(e)
		if err != nil {
			return nil, err
		}
		if last := len(parts) - 1; last < 0 || len(parts[last])+len(line) >= maxLogPart {
			parts = append(parts, nil)
		}
		last := len(parts) - 1
		parts[last] = append(append(parts[last], line...), '\n')
	}
	return parts, nil
}

// Join returns the log with a later part behind it; ok is false if one part has no space for both.
func (l Log) Join(later Log) (joined Log, ok bool) {
	if len(l)+len(later) > maxLogPart {
		return nil, false
	}
	return append(bytes.Clone(l), later...), true
}

// Encode returns the part as gzip. Equal parts have equal bytes.
func (l Log) Encode() ([]byte, error) { return pack(l) }

// UnpackLog unpacks a part of a log that a manifest refers to.
func UnpackLog(data []byte, ref BlobRef) (Log, error) { return ref.unpack(data, maxLogPart, "log") }

// Entries decodes a part and checks all of it.
func (l Log) Entries() ([]Entry, error) {
	var out []Entry
	for line := range bytes.Lines(l) {
		var e Entry
		if err := unmarshal(line, &e); err != nil {
			return nil, wrap(KindFormat, err, "log")
		}
		if err := e.check(); err != nil {
			return nil, wrap(KindFormat, err, "log")
		}
		out = append(out, e)
	}
	return out, nil
}
