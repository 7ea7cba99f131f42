// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
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
	return Held{append([]string{}, held...), reason, orNull(until)}
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

// Progress shows how far long work is: one line that is written over on a
// terminal, one line per phase of each image elsewhere.
type Progress struct {
	w          *outside.Writer
	isTerminal bool
	shown      bool
	pulls      []status.Progress // under way
	said       map[string]string // the last phase, by reference
}

// wipe empties the line that the cursor is in (ECMA-48, EL).
const wipe = "\r\x1b[K"

// NewProgress shows progress on w.
func NewProgress(w io.Writer) *Progress {
	return &Progress{w: outside.NewWriter(w), isTerminal: terminal.Is(w), said: map[string]string{}}
}

// Show prints an event. Ends of questions and health checks are not shown: the next event or the result says enough.
func (p *Progress) Show(e status.Progress) {
	if e.Ended != "" {
		return
	}
	if len(e.Edits) > 0 { // said for good, and once
		if text := editsLine(e.Edits); p.said[e.Reference] != text {
			p.End()
			fmt.Fprintf(p.w, "%s %s: %s\n", e.Phase, e.Reference, text)
			p.said[e.Reference], p.shown = text, false
		}
		return
	}
	p.pulls = status.UpdatePulls(p.pulls, e)
	if p.isTerminal {
		line := progressLine(e)
		if len(p.pulls) > 1 {
			line = pullsLine(p.pulls)
		}
		p.w.Control(wipe)
		fmt.Fprint(p.w, terminal.OneLine(line))
		p.shown = true
		return
	}
	if p.said[e.Reference] != e.Phase {
		fmt.Fprintln(p.w, terminal.OneLine(e.Phase+" "+e.Reference))
		p.said[e.Reference] = e.Phase
	}
}

// End leaves the line to what comes next.
func (p *Progress) End() {
	if p.shown {
		p.w.Control(wipe)
	}
}

// editsLine is what changes of a pod manifest.
func editsLine(edits []status.Edit) string {
	var out []string
	for _, e := range edits {
		out = append(out, editText(e))
	}
	return strings.Join(out, "; ")
}

func editText(e status.Edit) string {
	text := fmt.Sprintf("%s %s -> %s", e.Container, cmp.Or(e.From, "-"), e.To)
	if e.Field == status.EditPullPolicy {
		text = fmt.Sprintf("pull policy of %s %s -> %s", e.Container, cmp.Or(e.From, "not set"), e.To)
	}
	return terminal.OneLine(text)
}

func progressLine(e status.Progress) string {
	line := fmt.Sprintf("%-11s %s", e.Phase, e.Reference)
	if e.Count > 1 {
		line += fmt.Sprintf(" (%d of %d)", e.Number, e.Count)
	}
	if e.Reason != "" {
		line += ": " + terminal.OneLine(e.Reason)
	}
	if e.Total <= 0 {
		return line
	}
	return line + " " + bar(e.Done, e.Total)
}

// pullsLine is several pulls in one line: what is missing of all of them, and
// how far each is, by the last part of its name.
func pullsLine(pulls []status.Progress) string {
	var done, total int64
	var each []string
	for _, e := range pulls {
		done, total = done+e.Done, total+e.Total
		name, _, _ := strings.Cut(path.Base(e.Reference), "@")
		if e.Total > 0 {
			name = fmt.Sprintf("%s %d%%", name, min(e.Done, e.Total)*100/e.Total)
		}
		each = append(each, name)
	}
	line := fmt.Sprintf("%d pulls", len(pulls))
	if total > 0 {
		line += " " + bar(done, total)
	}
	return line + ": " + strings.Join(each, ", ")
}

// barWidth is the bar's length in characters: it fits beside a long reference
// on a terminal of 120.
const barWidth = 24

func bar(done, total int64) string {
	full := int(float64(min(done, total)) / float64(total) * barWidth)
	return fmt.Sprintf("[%s%s] %.1f of %.1f MB",
		strings.Repeat("#", full), strings.Repeat(".", barWidth-full), mb(done), mb(total))
}

func mb(n int64) float64 { return float64(n) / 1e6 }
