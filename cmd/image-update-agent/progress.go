// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/kubic-project/image-update-agent/agent"
)

// progress shows how far long work is: one line that is written over on a
// terminal, one line per phase of each image elsewhere.
type progress struct {
	w        io.Writer
	terminal bool
	shown    bool
	pulls    []agent.Progress  // under way
	said     map[string]string // the last phase, by reference
}

func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	return &progress{w: w, terminal: ok && term.IsTerminal(int(f.Fd())), said: map[string]string{}}
}

func (p *progress) show(e agent.Progress) {
	p.pulls = agent.Pulling(p.pulls, e)
	if p.terminal {
		line := progressLine(e)
		if len(p.pulls) > 1 {
			line = pullsLine(p.pulls)
		}
		fmt.Fprintf(p.w, "\r\x1b[K%s", line)
		p.shown = true
		return
	}
	if p.said[e.Reference] != e.Phase {
		fmt.Fprintln(p.w, e.Phase+" "+e.Reference)
		p.said[e.Reference] = e.Phase
	}
}

// end leaves the line to what comes next.
func (p *progress) end() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
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
