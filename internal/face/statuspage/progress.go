// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

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
