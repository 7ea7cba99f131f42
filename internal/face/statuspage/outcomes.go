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

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// Outcome is one of the list that `apply` and `rollback` print.
type Outcome struct {
	status.Outcome
	Diff string `json:"diff"` // with --diff
}

// Outcomes adds to each outcome the diff of its pod manifest.
func Outcomes(out []status.Outcome, diffs map[string]string) []Outcome {
	views := make([]Outcome, 0, len(out))
	for _, o := range out {
		views = append(views, Outcome{o, diffs[o.PodManifest]})
	}
	return views
}

// WriteOutcomes writes a line for each pod manifest with a result other than nothing, with times in zone.
func WriteOutcomes(w io.Writer, out []Outcome, none string, zone *time.Location) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, o := range out {
		if o.Result != status.ResultNothing {
			line := fmt.Sprintf("%s\t%s\t%s", o.PodManifest, cmp.Or(o.Change, "-"), o.Result)
			reason := o.reason()
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

// reason is also what a dry run would change and bring.
func (o Outcome) reason() string {
	if o.Result != status.ResultWouldApply {
		return o.Reason
	}
	brings := ""
	if o.Brings != nil {
		brings = bringsText(*o.Brings)
	}
	return strings.Join(slices.DeleteFunc([]string{o.Reason, brings, editsLine(o.Edits)}, isEmpty), "; ")
}

func isEmpty(text string) bool { return text == "" }

// Worst is the result of all: a failure, what an interrupted caller has left, a hold, then success; nothing only if all
// results are nothing.
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

// Held is what `hold` shows.
type Held struct {
	Held   []string   `json:"held"` // repositories; "*": all
	Reason string     `json:"reason"`
	Until  *time.Time `json:"until"` // null: until resume
}

// NewHeld returns what was held; until zero: without an end.
func NewHeld(held []string, reason string, until time.Time) Held {
	v := Held{Held: append([]string{}, held...), Reason: reason}
	if !until.IsZero() {
		v.Until = new(until.UTC())
	}
	return v
}

// Write writes a line for each repository.
func (v Held) Write(w io.Writer, zone *time.Location) error {
	until := "until resume"
	if v.Until != nil {
		until = "until " + terminal.Clock(*v.Until, zone)
	}
	for _, h := range v.Held {
		if _, err := fmt.Fprintf(w, "held %s: %s\n", until, everyImage(h)); err != nil {
			return err
		}
	}
	return nil
}

// Resumed is what `resume` shows.
type Resumed struct {
	Resumed []string `json:"resumed"` // repositories; "*": what held all
}

// NewUnheld returns what is no longer held.
func NewUnheld(held []string) Resumed { return Resumed{append([]string{}, held...)} }

// Write writes a line for each repository.
func (v Resumed) Write(w io.Writer) error {
	for _, h := range v.Resumed {
		if _, err := fmt.Fprintf(w, "resumed: %s\n", everyImage(h)); err != nil {
			return err
		}
	}
	if len(v.Resumed) > 0 {
		return nil
	}
	_, err := fmt.Fprintln(w, "there was no such hold; `image-update-agent status` lists the holds")
	return err
}

func everyImage(held string) string {
	if held == record.AllImages {
		return "every image"
	}
	return held
}
