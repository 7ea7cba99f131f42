// SPDX-License-Identifier: Apache-2.0

package status

import (
	"time"

	"github.com/opencontainers/go-digest"
)

// HistoryEntry is an event of one container: it was applied, picked up by kubelet or rolled back, or one of these
// failed.
type HistoryEntry struct {
	At          time.Time `json:"at" dbus:"at"` // end of the event
	PodManifest string    `json:"podManifest" dbus:"podManifest"`
	// Container: empty if no release changed: the entry is about the whole pod.
	Container string `json:"container" dbus:"container"`
	// Change: of the pod manifest, as in an Outcome; empty if kubelet picked it up.
	Change string `json:"change" dbus:"change"`
	Image  string `json:"image" dbus:"image"` // repository
	// From: the previous release by its best name; empty if unknown.
	From   string        `json:"from" dbus:"from"`
	To     string        `json:"to" dbus:"to"`
	Digest digest.Digest `json:"digest" dbus:"digest"` // of To
	Result Result        `json:"result" dbus:"result"`
	// Cause is why it failed, or was rolled back automatically; empty if neither.
	Cause  ErrorKind `json:"cause" dbus:"cause"`
	Reason string    `json:"reason" dbus:"reason"` // for people
	By     Actor     `json:"by" dbus:",inline"`
}
