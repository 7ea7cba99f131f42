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
// terminal, one line per phase elsewhere.
type progress struct {
	w        io.Writer
	terminal bool
	last     string
}

func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	return &progress{w: w, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

func (p *progress) show(e agent.Progress) {
	if p.terminal {
		fmt.Fprintf(p.w, "\r\x1b[K%s", progressLine(e))
		p.last = e.Phase
		return
	}
	if line := e.Phase + " " + e.Reference; line != p.last {
		fmt.Fprintln(p.w, line)
		p.last = line
	}
}

// end leaves the line to what comes next.
func (p *progress) end() {
	if p.terminal && p.last != "" {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// barWidth is the bar's length in characters: it fits beside a long reference
// on a terminal of 120.
const barWidth = 24

func progressLine(e agent.Progress) string {
	line := fmt.Sprintf("%-11s %s", e.Phase, e.Reference)
	if e.Total <= 0 {
		return line
	}
	full := int(min(e.Done, e.Total) * barWidth / e.Total)
	return fmt.Sprintf("%s [%s%s] %.1f of %.1f MB", line,
		strings.Repeat("#", full), strings.Repeat(".", barWidth-full), mb(e.Done), mb(e.Total))
}

func mb(n int64) float64 { return float64(n) / 1e6 }
