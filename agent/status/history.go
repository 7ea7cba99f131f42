// SPDX-License-Identifier: Apache-2.0

package status

import (
	"time"

	"github.com/opencontainers/go-digest"
)

// HistoryEntry is what became of one container: it was applied, adopted or rolled back, or that failed.
type HistoryEntry struct {
	At          time.Time     `json:"at"` // of the end
	PodManifest string        `json:"podManifest"`
	Container   string        `json:"container"` // empty: no release changed, the entry is of the whole pod
	Change      string        `json:"change"`    // of the pod manifest, as of an Outcome; empty: adopted
	Image       string        `json:"image"`     // repository
	From        string        `json:"from"`      // the release that ran before, by its best name; empty: not known
	To          string        `json:"to"`
	Digest      digest.Digest `json:"digest"` // of To
	Result      Result        `json:"result"`
	// Cause is why it failed, or was rolled back by itself; empty: neither.
	Cause  ErrorKind `json:"cause"`
	Reason string    `json:"reason"` // for people
	By     Actor     `json:"by"`
}
