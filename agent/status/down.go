// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"time"
)

// Down describes a followed container that does not run.
type Down struct {
	// Since is when it ended; if it never started, when that was first observed.
	Since time.Time `json:"since"`
	// Starting: kubelet has not started it yet, and may still pull or run init containers. After five minutes it counts
	// as down.
	Starting bool   `json:"starting"`
	ExitCode int32  `json:"exitCode"`
	Reason   string `json:"reason"`  // from CRI or kubelet: Error, OOMKilled, CrashLoopBackOff, ErrImagePull; or empty
	Message  string `json:"message"` // from CRI or kubelet
	// Absent: CRI does not list it.
	Absent bool `json:"absent,omitempty"`
}

// String describes the container in one sentence.
func (d Down) String() string {
	text := "is not running"
	switch {
	case d.Starting:
		text = "has not started yet"
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

// AsReason returns the reason for the node's state.
func (d *Down) AsReason(file, container, image string) Reason {
	return Reason{
		Kind: KindDown, PodManifest: file, Container: container, Image: image, Since: d.Since.UTC(),
		Text: fmt.Sprintf("%s: %s %s", file, container, d),
	}
}
