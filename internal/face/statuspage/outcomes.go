// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// Outcome is one of the list that `apply` and `rollback` print.
type Outcome struct {
	status.Outcome
	Diff string `json:"diff"` // with --diff
}

// Outcomes adds the differences, by pod manifest.
func Outcomes(out []status.Outcome, diffs map[string]string) []Outcome {
	views := make([]Outcome, 0, len(out))
	for _, o := range out {
		views = append(views, Outcome{o, diffs[o.PodManifest]})
	}
	return views
}

// WriteOutcomes writes a line for each pod manifest that something became of, with times in zone; none where nothing
// did.
func WriteOutcomes(w io.Writer, out []Outcome, none string, zone *time.Location) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, o := range out {
		if o.Result != status.ResultNothing {
			line := fmt.Sprintf("%s\t%s\t%s", o.PodManifest, cmp.Or(o.Change, "-"), o.Result)
			reason := o.Reason
			if o.Result == status.ResultWouldApply {
				reason = strings.Join(slices.DeleteFunc([]string{reason, editsLine(o.Edits)}, isEmpty), "; ")
			}
			if reason != "" {
				line += "\t" + terminal.OneLine(terminal.InZone(reason, zone))
			}
			fmt.Fprintln(table, line)
		}
	}
	if Worst(out) == status.ResultNothing {
		fmt.Fprintln(table, none)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, o := range out {
		if o.Result == status.ResultWouldApply {
			if _, err := io.WriteString(w, o.Diff); err != nil {
				return err
			}
		}
	}
	return nil
}

func isEmpty(text string) bool { return text == "" }

// Worst is the result of all: a failure, what an interrupted caller has left, a hold, then success; nothing only where
// there was nothing at all.
func Worst(out []Outcome) status.Result {
	for _, result := range []status.Result{
		status.ResultFailed, status.ResultContinues, status.ResultCanceled, status.ResultHeld,
		status.ResultApplied, status.ResultRolledBack, status.ResultWouldApply,
	} {
		if slices.ContainsFunc(out, func(o Outcome) bool { return o.Result == result }) {
			return result
		}
	}
	return status.ResultNothing
}
