// SPDX-License-Identifier: Apache-2.0

// Package manpage makes the man pages when the package is built, and is no part of the agent: Markdown with the texts
// of --help and of the shipped configuration in it, turned into roff by go-md2man.
package manpage

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"

	"github.com/kubic-project/image-update-agent/agent/status"
)

var (
	titleLine  = regexp.MustCompile(`^# ([a-z][a-z.-]*)\(([1-9])\)\n`)
	insertLine = regexp.MustCompile(`(?m)^<!-- ([a-z]+) -->$`)
)

// Page makes a page. Its first line is "# name(section)"; a line <!-- name --> is the place of inserts[name],
// <!-- holds --> of the holds that bind everybody, <!-- autoholds --> of the others. There is no date in it: the same
// sources give the same page.
func Page(markdown, version string, inserts map[string]func() (string, error)) ([]byte, error) {
	title := titleLine.FindStringSubmatch(markdown)
	if title == nil {
		return nil, fmt.Errorf("want # name(section) as the first line")
	}
	var failed error
	body := insertLine.ReplaceAllStringFunc(markdown[len(title[0]):], func(line string) string {
		name := insertLine.FindStringSubmatch(line)[1]
		insert, known := inserts[name]
		switch {
		case name == "holds":
			return holds(func(kind status.HoldKind) bool { return !kind.OnlyAuto })
		case name == "autoholds":
			return holds(func(kind status.HoldKind) bool { return kind.OnlyAuto })
		case !known:
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

// ascii keeps the characters that commands are made of from becoming typographic ones, which can be neither searched
// for nor pasted (groff_char(7)).
var ascii = strings.NewReplacer(`\-`, `\-`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

// polish makes of md2man's roff what man pages look like elsewhere: upper-case sections, ASCII, examples moved in, and
// words neither hyphenated nor stretched, as names and paths are searched for and pasted.
func polish(roff []byte) []byte {
	var out bytes.Buffer
	for line := range strings.Lines(string(roff)) {
		switch macro, rest, _ := strings.Cut(line, " "); strings.TrimSpace(macro) {
		case ".nh":
			continue // the title would undo it
		case ".TH":
			line = ".TH " + ascii.Replace(rest) + ".nh\n.ad l\n"
		case ".SH":
			line = ".SH " + ascii.Replace(strings.ToUpper(rest))
		case ".SS":
			line = ".SS " + ascii.Replace(rest)
		case ".EX":
			line = ".in +4n\n.EX\n"
		case ".EE":
			line = ".EE\n.in\n.nh\n" // .EE turns hyphens on again
		default:
			if !strings.HasPrefix(line, ".") {
				line = ascii.Replace(line)
			}
		}
		out.WriteString(line)
	}
	return out.Bytes()
}

// markup is what Markdown would take for its own in a line of plain text, beside code in backquotes.
var markup = regexp.MustCompile("(`[^`]+`)|[\\\\`*_\\[\\]<>|#&]|^[-+:=~]|^[0-9]+[.)]")

// prose is a paragraph of plain text as Markdown, in one line. What stands in backquotes stays code.
func prose(text string) string {
	return markup.ReplaceAllStringFunc(strings.Join(strings.Fields(text), " "), func(found string) string {
		if last := len(found) - 1; last < 2 || found[0] != '`' {
			return found[:last] + `\` + found[last:]
		}
		return found // code
	})
}

// paragraphs is plain text as Markdown, each line behind indent. Lines that begin with two blanks are an example and
// stay as they are.
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

// example is a block of lines as they are, without the margin that all of them have.
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
