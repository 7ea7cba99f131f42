// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"time"
)

// Down is that a followed container does not run.
type Down struct {
	// Since is when it ended; of one that was never started, when that was seen first.
	Since time.Time `json:"since"`
	// Starting: it was not started yet, and kubelet may be about to: it pulls, or
	// init containers run. It is believed for five minutes.
	Starting bool   `json:"starting"`
	ExitCode int32  `json:"exitCode"`
	Reason   string `json:"reason"`  // CRI's or kubelet's word: Error, OOMKilled, CrashLoopBackOff, ErrImagePull; or empty
	Message  string `json:"message"` // what they say beside it
	// Absent: CRI does not show it.
	Absent bool `json:"absent,omitempty"`
}

// String says why, in one sentence.
func (d Down) String() string {
	text := "does not run"
	switch {
	case d.Starting:
		text = "is not started yet"
	case d.Absent:
		text = "was not started"
	default:
		text += fmt.Sprintf(" (exit code %d)", d.ExitCode)
	}
	for _, more := range []string{d.Reason, d.Message} {
		if more != "" {
			text += ": " + more
		}
	}
	return text
}

// AsReason is a container that does not run as a reason of the node's.
func (d *Down) AsReason(file, container, image string) Reason {
	return Reason{
		Kind: KindDown, PodManifest: file, Container: container, Image: image, Since: d.Since.UTC(),
		Text: fmt.Sprintf("%s: %s %s", file, container, d),
	}
}
