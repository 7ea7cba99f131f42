// SPDX-License-Identifier: Apache-2.0

// Package terminal writes text for people: in columns, wrapped to the width of their terminal, with colours, and with
// times in their zone. If the output is not a terminal, lines are not wrapped and there are no colours, so that other
// programs can process it.
package terminal

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Page is text being written. Flush returns the first error.
type Page struct {
	Now    time.Time // in the reader's zone
	Width  int       // of the terminal, in columns; 0: not a terminal
	Colour bool

	w      *bufio.Writer
	out    *outside.Writer // under w; for colours
	column int             // column of the next character
	title  string          // of a section without items yet
}

// narrowest is the minimum width of a page; a terminal that reports less counts as none.
const narrowest = 40

// NewPage returns a page that writes to w, formatted for a terminal if w is one.
func NewPage(w io.Writer, now time.Time) *Page {
	out := outside.NewWriter(w)
	p := &Page{Now: now, w: bufio.NewWriter(out), out: out}
	f, ok := w.(*os.File)
	if !ok || !Is(f) {
		return p
	}
	_, plain := os.LookupEnv("NO_COLOR")
	p.Colour = !plain && os.Getenv("TERM") != "dumb"
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width >= narrowest {
		p.Width = width
	}
	return p
}

// Is reports whether w is a terminal.
func Is(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Flush writes buffered text, and returns the first error of all writes.
func (p *Page) Flush() error { return p.w.Flush() }

// Text writes a part of a line.
func (p *Page) Text(text string) {
	_, _ = p.w.WriteString(text)
	p.column += utf8.RuneCountInString(text)
}

// Line writes the rest of a line.
func (p *Page) Line(text string) {
	p.Text(text + "\n")
	p.column = 0
}

// Section begins a part of the page, whose title is written before its first item: one without items is not shown.
func (p *Page) Section(title string) { p.title = "\n" + title }

// Item writes text after a label, and wraps it in the column after it. Text already in the line is part of the label.
func (p *Page) Item(label, text string) {
	if p.title != "" {
		p.Line(p.title)
		p.title = ""
	}
	column := p.column + utf8.RuneCountInString(label)
	for n, line := range p.fold(OneLine(InZone(text, p.Now.Location())), column) {
		switch {
		case n > 0:
			p.Line(strings.Repeat(" ", column) + line)
		case line == "":
			p.Line(strings.TrimRight(label, " "))
		default:
			p.Line(label + line)
		}
	}
}

// fold wraps text at spaces into lines with space for an indent. A word longer than a line is not split, because people
// may copy it.
func (p *Page) fold(text string, indent int) []string {
	if p.Width == 0 {
		return []string{text}
	}
	width := max(p.Width-indent, narrowest/2)
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}

// Fits reports whether rows fit the terminal in columns.
func (p *Page) Fits(rows [][]string) bool {
	total := -2
	for _, width := range widthsOf(rows) {
		total += width + 2
	}
	return p.Width == 0 || total <= p.Width
}

// Rows writes cells in columns, two spaces between them. A row of one cell is a title above those that follow, and may
// be longer than its column.
func (p *Page) Rows(rows [][]string) {
	widths := widthsOf(rows)
	for _, row := range rows {
		var line strings.Builder
		for n, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", max(0, widths[n]-utf8.RuneCountInString(cell))+2))
		}
		p.Line(strings.TrimRight(line.String(), " "))
	}
}

func widthsOf(rows [][]string) []int {
	widths := []int{0}
	for _, row := range rows {
		for n, cell := range row {
			if n == len(widths) {
				widths = append(widths, 0)
			}
			if len(row) > 1 {
				widths[n] = max(widths[n], utf8.RuneCountInString(cell))
			}
		}
	}
	return widths
}

// Colour is a terminal colour (ECMA-48, SGR).
type Colour string

// The colours of pages; a word in None is written plainly.
const (
	None   Colour = ""
	Red    Colour = "31"
	Green  Colour = "32"
	Yellow Colour = "33"
)

// Painted writes a word in a colour.
func (p *Page) Painted(colour Colour, word string) {
	if !p.Colour || colour == None {
		p.Text(word)
		return
	}
	p.control("\x1b[1;" + string(colour) + "m")
	p.Text(word)
	p.control("\x1b[0m")
}

func (p *Page) control(sequence string) {
	_ = p.w.Flush() // the last one has the error
	p.out.Control(sequence)
}

// Clock returns a time for the reader.
func (p *Page) Clock(t time.Time) string { return Clock(t, p.Now.Location()) }

// Past returns a time in the past, and how long ago it was.
func (p *Page) Past(t time.Time) string { return p.Clock(t) + " (" + Ago(p.Now.Sub(t)) + ")" }

// Next returns a time in the future, and how long until then.
func (p *Page) Next(t time.Time) string {
	if !t.After(p.Now) {
		return p.Clock(t) + " (due)"
	}
	return p.Clock(t) + " (in " + span(t.Sub(p.Now)) + ")"
}

// Clock returns a time for people, in their zone, with the zone's name.
func Clock(t time.Time, zone *time.Location) string {
	return t.In(zone).Format("2006-01-02 15:04:05 MST")
}

// stamp matches a time in RFC 3339.
var stamp = lazyregexp.New(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)

// InZone converts the times in a text for people. Texts have times in RFC 3339, for programs, including those in errors
// of others such as x509's. InZone formats all of them as Clock does.
func InZone(text string, zone *time.Location) string {
	return stamp().ReplaceAllStringFunc(text, func(found string) string {
		at, err := time.Parse(time.RFC3339, found)
		if err != nil {
			return found
		}
		return Clock(at, zone)
	})
}

// Ago returns a duration as time in the past.
func Ago(d time.Duration) string {
	if d < 0 {
		return "in the future: the clock was changed"
	}
	return span(d) + " ago"
}

// span returns a duration in its largest unit.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// Plural returns a count with its noun.
func Plural(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(what, "y"))
	default:
		return fmt.Sprintf("%d %ss", n, what)
	}
}

// maxNames is how many of several names are listed.
const maxNames = 3

// Few returns the first names and the number of the others.
func Few(names []string) string {
	text := strings.Join(names[:min(len(names), maxNames)], ", ")
	if more := len(names) - maxNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// OneLine makes text from outside one line, so that it cannot look like several lines or columns.
func OneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Quoted returns a text, in quotes if it has characters to escape.
func Quoted(text string) string {
	if q := fmt.Sprintf("%q", text); q != `"`+text+`"` {
		return q
	}
	return text
}
