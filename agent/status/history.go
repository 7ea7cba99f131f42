// SPDX-License-Identifier: Apache-2.0

package status

import (
	"time"

	"github.com/opencontainers/go-digest"
)

// HistoryEntry is what became of one container: it was applied, adopted or rolled back, or that failed.
type HistoryEntry struct {
	At          time.Time `json:"at" dbus:"at"` // of the end
	PodManifest string    `json:"podManifest" dbus:"podManifest"`
	// Container: empty: no release changed, the entry is of the whole pod.
	Container string `json:"container" dbus:"container"`
	// Change: of the pod manifest, as of an Outcome; empty: adopted.
	Change string `json:"change" dbus:"change"`
	Image  string `json:"image" dbus:"image"` // repository
	// From: the release that ran before, by its best name; empty: not known.
	From   string        `json:"from" dbus:"from"`
	To     string        `json:"to" dbus:"to"`
	Digest digest.Digest `json:"digest" dbus:"digest"` // of To
	Result Result        `json:"result" dbus:"result"`
	// Cause is why it failed, or was rolled back by itself; empty: neither.
	Cause  ErrorKind `json:"cause" dbus:"cause"`
	Reason string    `json:"reason" dbus:"reason"` // for people
	By     Actor     `json:"by" dbus:",inline"`
}
