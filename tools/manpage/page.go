// SPDX-License-Identifier: Apache-2.0

// Package manpage generates the man pages when the package is built; it is not part of the agent. Its input is
// Markdown, the texts of --help and the shipped configuration, which go-md2man converts to roff.
package manpage

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
)

var (
	titleLine  = regexp.MustCompile(`^# ([a-z][a-z.-]*)\(([1-9])\)\n`)
	insertLine = regexp.MustCompile(`(?m)^<!-- ([a-z]+) -->$`)
)

// Page generates a page. Its first line is "# name(section)"; a line <!-- name --> is replaced by inserts[name]. Page
// removes the marks of generated tables. The page has no date, so the same sources give the same page.
func Page(markdown, version string, inserts map[string]func() (string, error)) ([]byte, error) {
	title := titleLine.FindStringSubmatch(markdown)
	if title == nil {
		return nil, fmt.Errorf("want # name(section) as the first line")
	}
	var failed error
	body := marks.ReplaceAllStringFunc(markdown[len(title[0]):], func(table string) string {
		m := marks.FindStringSubmatch(table)
		return table[len(m[1]) : len(table)-len(m[3])]
	})
	body = insertLine.ReplaceAllStringFunc(body, func(line string) string {
		name := insertLine.FindStringSubmatch(line)[1]
		insert, known := inserts[name]
		if !known {
			failed = fmt.Errorf("%s: nothing is called %s", line, name)
			return ""
		}
		text, err := insert()
		if err != nil {
			failed = fmt.Errorf("%s: %w", name, err)
		}
		return text
	})
	if failed != nil {
		return nil, failed
	}
	head := fmt.Sprintf("# %q %q %q %q %q\n", strings.ToUpper(title[1]), title[2], "", title[1]+" "+version, "")
	return polish(md2man.Render([]byte(head + body))), nil
}

// ascii keeps characters of commands from becoming typographic ones, which cannot be searched for or pasted
// (groff_char(7)).
var ascii = strings.NewReplacer(`\-`, `\-`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

// polish adapts md2man's roff to the usual style of man pages: upper-case sections, ASCII, indented examples, and words
// neither hyphenated nor stretched, because names and paths are searched for and pasted.
func polish(roff []byte) []byte {
	var out bytes.Buffer
	for line := range strings.Lines(string(roff)) {
		switch macro, rest, _ := strings.Cut(line, " "); strings.TrimSpace(macro) {
		case ".nh":
			continue // the title would reset it
		case ".TH":
			line = ".TH " + ascii.Replace(rest) + ".nh\n.ad l\n"
		case ".SH":
			line = ".SH " + ascii.Replace(strings.ToUpper(rest))
		case ".SS":
			line = ".SS " + ascii.Replace(rest)
		case ".EX":
			line = ".in +4n\n.EX\n"
		case ".EE":
			line = ".EE\n.in\n.nh\n" // .EE re-enables hyphenation
		default:
			if !strings.HasPrefix(line, ".") {
				line = ascii.Replace(line)
			}
		}
		out.WriteString(line)
	}
	return out.Bytes()
}

// markup matches text that Markdown would interpret in a line of plain text, other than code in backquotes.
var markup = regexp.MustCompile("(`[^`]+`)|[\\\\`*_\\[\\]<>|#&]|^[-+:=~]|^[0-9]+[.)]")

// prose returns a paragraph of plain text as Markdown, in one line. Text in backquotes stays code.
func prose(text string) string {
	return markup.ReplaceAllStringFunc(strings.Join(strings.Fields(text), " "), func(found string) string {
		if last := len(found) - 1; last < 2 || found[0] != '`' {
			return found[:last] + `\` + found[last:]
		}
		return found // code
	})
}

// paragraphs returns plain text as Markdown, each line after indent. Lines that begin with two blanks are an example
// and stay unchanged.
func paragraphs(text, indent string) string {
	var out strings.Builder
	var block []string
	isExample := false
	end := func() {
		if len(block) > 0 && isExample {
			out.WriteString(example(strings.Join(block, "\n"), indent))
		} else if len(block) > 0 {
			out.WriteString(indent + prose(strings.Join(block, " ")) + "\n\n")
		}
		block = nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		isIndented := strings.HasPrefix(line, "  ")
		isEmpty := strings.TrimSpace(line) == ""
		if isEmpty && !isExample || !isEmpty && isIndented != isExample {
			end()
			isExample = isIndented
		}
		if !isEmpty || len(block) > 0 {
			block = append(block, line)
		}
	}
	end()
	return out.String()
}

// example returns a block of lines unchanged, without their common margin.
func example(text, indent string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	margin := len(text)
	for _, line := range lines {
		if trimmed := strings.TrimLeft(line, " "); trimmed != "" {
			margin = min(margin, len(line)-len(trimmed))
		}
	}
	var out strings.Builder
	for _, line := range lines {
		out.WriteString(strings.TrimRight(indent+"    "+line[min(margin, len(line)):], " ") + "\n")
	}
	return out.String() + "\n"
}
