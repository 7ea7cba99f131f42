// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// progress shows how far long work is: one line that is written over on a
// terminal, one line per phase of each image elsewhere.
type progress struct {
	w        *outside.Writer
	terminal bool
	shown    bool
	pulls    []agent.Progress  // under way
	said     map[string]string // the last phase, by reference
}

// wipe empties the line that the cursor is in (ECMA-48, EL).
const wipe = "\r\x1b[K"

func newProgress(w io.Writer) *progress {
	return &progress{w: outside.NewWriter(w), terminal: isTerminal(w), said: map[string]string{}}
}

func (p *progress) show(e agent.Progress) {
	if len(e.Edits) > 0 { // said for good, and once
		if text := editsLine(e.Edits); p.said[e.Reference] != text {
			p.end()
			fmt.Fprintf(p.w, "%s %s: %s\n", e.Phase, e.Reference, text)
			p.said[e.Reference], p.shown = text, false
		}
		return
	}
	p.pulls = agent.Pulling(p.pulls, e)
	if p.terminal {
		line := progressLine(e)
		if len(p.pulls) > 1 {
			line = pullsLine(p.pulls)
		}
		p.w.Control(wipe)
		fmt.Fprint(p.w, oneLine(line))
		p.shown = true
		return
	}
	if p.said[e.Reference] != e.Phase {
		fmt.Fprintln(p.w, oneLine(e.Phase+" "+e.Reference))
		p.said[e.Reference] = e.Phase
	}
}

// end leaves the line to what comes next.
func (p *progress) end() {
	if p.shown {
		p.w.Control(wipe)
	}
}

// editsLine is what changes of a pod manifest.
func editsLine(edits []agent.Edit) string {
	var out []string
	for _, e := range edits {
		out = append(out, editText(e))
	}
	return strings.Join(out, "; ")
}

func editText(e agent.Edit) string {
	if e.Field == agent.EditPullPolicy {
		from := orText(oneLine(e.From), "not written")
		return fmt.Sprintf("pull policy of %s %s -> %s", oneLine(e.Container), from, oneLine(e.To))
	}
	return fmt.Sprintf("%s %s -> %s", oneLine(e.Container), dash(oneLine(e.From)), oneLine(e.To))
}

func progressLine(e agent.Progress) string {
	line := fmt.Sprintf("%-11s %s", e.Phase, e.Reference)
	if e.Total <= 0 {
		return line
	}
	return line + " " + bar(e.Done, e.Total)
}

// pullsLine is several pulls in one line: what is missing of all of them, and
// how far each is, by the last part of its name.
func pullsLine(pulls []agent.Progress) string {
	var done, total int64
	var each []string
	for _, e := range pulls {
		done, total = done+e.Done, total+e.Total
		name := e.Reference[strings.LastIndex(e.Reference, "/")+1:]
		if name, _, _ = strings.Cut(name, "@"); e.Total > 0 {
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
