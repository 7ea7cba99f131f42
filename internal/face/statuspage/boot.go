// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"fmt"
	"io"
	"time"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// BootStep is what became of a pod manifest at boot, as `render` shows it.
type BootStep struct {
	PodManifest string `json:"podManifest"`
	Result      string `json:"result"` // written, removed, unchanged
	Reason      string `json:"reason"`
}

const bootUnchanged = "unchanged"

// BootSteps returns a view of each step.
func BootSteps(steps []plan.BootStep) []BootStep {
	views := make([]BootStep, 0, len(steps))
	for _, s := range steps {
		v := BootStep{s.File, "written", s.Reason}
		switch {
		case s.Do == "":
			v.Result = bootUnchanged
		case s.Err != nil:
			v.Result, v.Reason = bootUnchanged, s.Err.Error()
		case s.Do == plan.StepRemove:
			v.Result = "removed"
		}
		views = append(views, v)
	}
	return views
}

// WriteBoot writes a line for each pod manifest.
func WriteBoot(w io.Writer, views []BootStep, zone *time.Location) error {
	for _, v := range views {
		if v.Result == bootUnchanged {
			v.Result = "unchanged"
		}
		if _, err := fmt.Fprintf(w, "%s %s: %s\n", v.PodManifest, v.Result, terminal.InZone(v.Reason, zone)); err != nil {
			return err
		}
	}
	return nil
}
