// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// page is text for people. Elsewhere than on a terminal no line is broken and
// nothing has a colour, so that it can be searched and sent on.
type page struct {
	w      *bufio.Writer
	out    *outside.Writer // below w; for colours
	column int             // in which the next character is written
	width  int             // of the terminal, in columns; 0: there is none
	colour bool
	now    time.Time // in the zone of who reads it
	away   bool      // the daemon is
}

// narrowest is what a page can be made for; a terminal that says less is not
// believed.
const narrowest = 40

func newPage(w io.Writer, now time.Time, away bool) *page {
	out := outside.NewWriter(w)
	return &page{w: bufio.NewWriter(out), out: out, now: now, away: away}
}

func (a *app) page() *page {
	p := newPage(a.files.out, time.Now().In(a.zone), a.away)
	f, ok := a.files.out.(*os.File)
	if !ok || !isTerminal(f) {
		return p
	}
	_, plain := os.LookupEnv("NO_COLOR")
	p.colour = !plain && os.Getenv("TERM") != "dumb"
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width >= narrowest {
		p.width = width
	}
	return p
}

// text writes a part of a line; the error is Flush's.
func (p *page) text(text string) {
	_, _ = p.w.WriteString(text)
	p.column += utf8.RuneCountInString(text)
}

func (p *page) line(text string) {
	p.text(text + "\n")
	p.column = 0
}

// item writes text behind a label, and breaks it so that it stays behind it. What
// stands in the line already belongs to the label.
func (p *page) item(label, text string) {
	column := p.column + utf8.RuneCountInString(label)
	for n, line := range p.fold(oneLine(inZone(text, p.now.Location())), column) {
		switch {
		case n > 0:
			p.line(strings.Repeat(" ", column) + line)
		case line == "":
			p.line(strings.TrimRight(label, " "))
		default:
			p.line(label + line)
		}
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

// Colours of terminals (ECMA-48, SGR).
const (
	red    = "31"
	green  = "32"
	yellow = "33"
)

// state writes a state's word in its colour.
func (p *page) state(s agent.State) {
	code := yellow
	switch s {
	case agent.StateFailed:
		code = red
	case agent.StateCurrent:
		code = green
	default:
	}
	p.painted(code, string(s))
}

// verdict writes a verdict's word in its colour; what is well has none.
func (p *page) verdict(v string) {
	switch v {
	case verdictFail:
		p.painted(red, v)
	case verdictWarn:
		p.painted(yellow, v)
	default:
		p.text(v)
	}
}

func (p *page) painted(code, text string) {
	p.control("\x1b[1;" + code + "m")
	p.text(text)
	p.control("\x1b[0m")
}

func (p *page) control(sequence string) {
	if p.colour {
		_ = p.w.Flush() // the last one has the error
		p.out.Control(sequence)
	}
}
