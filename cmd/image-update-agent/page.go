// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/kubic-project/image-update-agent/agent"
)

// page is text for people. Elsewhere than on a terminal no line is broken and
// nothing has a colour, so that it can be searched and sent on.
type page struct {
	w      *bufio.Writer
	width  int // of the terminal, in columns; 0: there is none
	colour bool
	now    time.Time
	away   bool // the daemon is
}

// narrowest is what a page can be made for; a terminal that says less is not
// believed.
const narrowest = 40

func (a *app) page() *page {
	p := &page{w: bufio.NewWriter(a.out), now: time.Now(), away: a.away}
	f, ok := a.out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return p
	}
	_, plain := os.LookupEnv("NO_COLOR")
	p.colour = !plain && os.Getenv("TERM") != "dumb"
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width >= narrowest {
		p.width = width
	}
	return p
}

func (p *page) line(text string) { _, _ = p.w.WriteString(text + "\n") } // Flush has the error

// item writes text behind a label, and breaks it so that it stays behind it.
func (p *page) item(label, text string) {
	indent := strings.Repeat(" ", utf8.RuneCountInString(colours.ReplaceAllString(label, "")))
	for n, line := range p.fold(text, len(indent)) {
		if n == 0 {
			p.line(strings.TrimRight(label+line, " "))
			continue
		}
		p.line(indent + line)
	}
}

// fold breaks text at spaces into lines that leave room for an indent. A word that
// is longer than a line stays whole: it may be copied.
func (p *page) fold(text string, indent int) []string {
	if p.width == 0 {
		return []string{text}
	}
	room := max(p.width-indent, narrowest/2)
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= room:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}

// rows writes cells in columns, two spaces between them.
func (p *page) rows(indent string, rows [][]string) {
	widths := widthsOf(rows)
	for _, row := range rows {
		var line strings.Builder
		for n, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", widths[n]-utf8.RuneCountInString(cell)+2))
		}
		p.line(strings.TrimRight(indent+line.String(), " "))
	}
}

func widthsOf(rows [][]string) []int {
	var widths []int
	for _, row := range rows {
		for n, cell := range row {
			if n == len(widths) {
				widths = append(widths, 0)
			}
			widths[n] = max(widths[n], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// colours take no room on a terminal.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// Colours of terminals (ECMA-48, SGR).
const (
	red    = "31"
	green  = "32"
	yellow = "33"
)

// state is a state's word in its colour.
func (p *page) state(s agent.State) string {
	code := yellow
	switch s {
	case agent.StateFailed:
		code = red
	case agent.StateCurrent:
		code = green
	default:
	}
	return p.painted(code, string(s))
}

// verdict is a verdict's word in its colour; what is well has none.
func (p *page) verdict(v string) string {
	switch v {
	case verdictFail:
		return p.painted(red, v)
	case verdictWarn:
		return p.painted(yellow, v)
	default:
		return v
	}
}

func (p *page) painted(code, text string) string {
	if !p.colour {
		return text
	}
	return "\x1b[1;" + code + "m" + text + "\x1b[0m"
}
