// SPDX-License-Identifier: Apache-2.0

// Package manual writes man pages, at build time: from Markdown, from the texts of the verbs, and from the commented
// configuration that is shipped, so that nothing is said twice.
//
// A Page is roff with the macros of man(7), which man-db and mandoc both read. Text is prose as it stands in comments,
// help texts and Markdown: paragraphs, `code`, *placeholders*, and lines that begin with two blanks or more, which are
// an example and keep their lines. What this package does not know in Markdown, such as a table, is an error and never
// printed as it is.
package manual

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
)

// Page is a man page that is being written. Its zero value is an empty one.
type Page struct {
	roff bytes.Buffer
}

// Bytes returns what was written.
func (p *Page) Bytes() []byte { return p.roff.Bytes() }

// Title begins the page: its name and section, and the version that its footer shows. There is no date: the same
// sources give the same page.
func (p *Page) Title(name, section, version string) {
	p.macro("TH", strings.ToUpper(name), section, "", name+" "+version, "")
	// Neither hyphenated nor stretched: names and paths are looked for and copied.
	p.line(".nh")
	p.line(".ad l")
}

// Section begins a section.
func (p *Page) Section(title string) { p.macro("SH", strings.ToUpper(title)) }

// Subsection begins a section of a section.
func (p *Page) Subsection(title string) { p.macro("SS", title) }

// Text writes prose.
func (p *Page) Text(text string) {
	p.blocks(text, ".PP", ".PP", 4)
}

// Term writes a term and, indented below it, what it means.
func (p *Page) Term(term, text string) {
	p.line(".TP")
	p.line(inline(term))
	p.blocks(text, "", ".IP", 9)
}

// Item writes an item of a list.
func (p *Page) Item(text string) {
	p.line(`.IP \(bu 2`)
	p.blocks(text, "", ".IP", 4)
}

// blocks writes prose. The macro first stands before a paragraph that it begins with, next before the later ones; an
// example is moved in by some blanks.
func (p *Page) blocks(text, first, next string, in int) {
	for i, block := range split(text) {
		macro := next
		if i == 0 {
			macro = first
		}
		switch {
		case block.example:
			p.example(block.lines, in)
			continue
		case macro != "":
			p.line(macro)
		}
		p.line(inline(strings.Join(block.lines, "\n")))
	}
}

// Example writes lines as they are.
func (p *Page) Example(text string) {
	p.example(strings.Split(strings.Trim(text, "\n"), "\n"), 4)
}

func (p *Page) example(lines []string, in int) {
	p.line(".PP")
	p.line(".RS " + strconv.Itoa(in))
	p.line(".nf")
	margin := indent(lines[0])
	for _, line := range lines {
		margin = min(margin, indent(line))
	}
	for _, line := range lines {
		p.line(guard(escape(line[min(margin, len(line)):])))
	}
	p.line(".fi")
	p.line(".RE")
}

// block is a paragraph or an example.
type block struct {
	example bool
	lines   []string
}

// split takes prose apart. An empty line ends a paragraph, and belongs to an example that goes on behind it.
func split(text string) []block {
	var blocks []block
	open := false // the last block takes another line
	for line := range strings.SplitSeq(text, "\n") {
		if strings.TrimSpace(line) == "" {
			open = false
			continue
		}
		example := indent(line) >= 2
		last := len(blocks) - 1
		switch {
		case last >= 0 && example && blocks[last].example && !open:
			blocks[last].lines = append(blocks[last].lines, "", line)
		case last >= 0 && open && example == blocks[last].example:
			blocks[last].lines = append(blocks[last].lines, line)
		default:
			blocks = append(blocks, block{example, []string{line}})
		}
		open = true
	}
	return blocks
}

// indent counts the blanks a line begins with; an empty line has as many as one likes.
func indent(line string) int {
	if strings.TrimSpace(line) == "" {
		return 1 << 10
	}
	return len(line) - len(strings.TrimLeft(line, " "))
}

var markup = regexp.MustCompile("`([^`]+)`|" + `\*\*([^*]+)\*\*|\*([A-Za-z][A-Za-z .-]*)\*|\[([^\]]+)\]\(([^)]+)\)`)

// inline sets the fonts of one paragraph.
func inline(text string) string {
	var out strings.Builder
	end := 0
	for _, m := range markup.FindAllStringSubmatchIndex(text, -1) {
		out.WriteString(escape(text[end:m[0]]))
		end = m[1]
		switch {
		case m[2] >= 0:
			out.WriteString(`\fB` + escape(text[m[2]:m[3]]) + `\fR`)
		case m[4] >= 0:
			out.WriteString(`\fB` + escape(text[m[4]:m[5]]) + `\fR`)
		case m[6] >= 0:
			out.WriteString(`\fI` + escape(text[m[6]:m[7]]) + `\fR`)
		default:
			out.WriteString(escape(text[m[8]:m[9]]))
		}
	}
	out.WriteString(escape(text[end:]))
	return guard(out.String())
}

// escape keeps roff from reading text as its own: see groff_char(7). A bare hyphen may become another character, which
// cannot be searched for or pasted.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`,
		"\r", "", "\t", "    ").Replace(text)
}

// guard keeps lines of text from being requests.
func guard(text string) string {
	if !strings.Contains("\n"+text, "\n.") {
		return text
	}
	return strings.TrimPrefix(strings.ReplaceAll("\n"+text, "\n.", "\n"+`\&.`), "\n")
}

// macro writes a request with its arguments quoted.
func (p *Page) macro(name string, args ...string) {
	p.roff.WriteString("." + name)
	for _, arg := range args {
		p.roff.WriteString(` "` + strings.ReplaceAll(escape(arg), `"`, `\(dq`) + `"`)
	}
	p.roff.WriteByte('\n')
}

func (p *Page) line(text string) {
	p.roff.WriteString(text)
	p.roff.WriteByte('\n')
}
