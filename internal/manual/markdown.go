// SPDX-License-Identifier: Apache-2.0

package manual

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	titleLine  = regexp.MustCompile(`^# ([a-z][a-z.-]*)\(([1-9])\)$`)
	insertLine = regexp.MustCompile(`^<!-- ([a-z]+) -->$`)
	// What other Markdown means by a line's beginning, and this does not.
	unknownLine = regexp.MustCompile(`^( ?[*+>|<]( |$)|[|<]|[0-9]+[.)] |#|~~~|` + "```" + `|={3,}$|-{3,}$|\t)`)
)

// Markdown writes a whole page. Its first line is "# name(section)"; then there are sections (##, ###), paragraphs,
// examples (indented by four), lists (-), and terms:
//
//	`--flag` *VALUE*
//	:   what it means
//
// A line <!-- name --> is the place of what inserts[name] writes; each of them must have its place.
func (p *Page) Markdown(text, version string, inserts map[string]func(*Page) error) error {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	title := titleLine.FindStringSubmatch(lines[0])
	if title == nil {
		return fmt.Errorf("markdown: line 1: %q: want # name(section)", lines[0])
	}
	p.Title(title[1], title[2], version)
	placed := 0
	for at := 1; at < len(lines); {
		if m := insertLine.FindStringSubmatch(lines[at]); m != nil {
			write, known := inserts[m[1]]
			if !known {
				return fmt.Errorf("markdown: line %d: %s: nothing is called %s", at+1, lines[at], m[1])
			}
			if err := write(p); err != nil {
				return err
			}
			placed++
			at++
			continue
		}
		used, err := p.markdownBlock(lines[at:])
		if err != nil {
			return fmt.Errorf("markdown: line %d: %w", at+1+used, err)
		}
		at += used
	}
	if placed != len(inserts) {
		return fmt.Errorf("markdown: %d of %d inserts have their place", placed, len(inserts))
	}
	return nil
}

// markdownBlock writes the block that lines begin with and returns how many lines it has, or which of them is wrong.
func (p *Page) markdownBlock(lines []string) (int, error) {
	first := lines[0]
	switch {
	case first == "":
		return 1, nil
	case strings.HasPrefix(first, "## "):
		p.Section(first[3:])
		return 1, nil
	case strings.HasPrefix(first, "### "):
		p.Subsection(first[4:])
		return 1, nil
	case strings.HasPrefix(first, "    "):
		n := run(lines, func(line string) bool { return line == "" || strings.HasPrefix(line, "    ") })
		p.Text(strings.Join(lines[:n], "\n"))
		return n, nil
	case strings.HasPrefix(first, "- "):
		n := 1 + run(lines[1:], func(line string) bool { return strings.HasPrefix(line, "  ") })
		p.Item(unindent(lines[:n], 2))
		return n, nil
	case len(lines) > 1 && strings.HasPrefix(lines[1], ":   "):
		n := 2 + run(lines[2:], func(line string) bool { return strings.HasPrefix(line, "    ") })
		p.Term(first, unindent(lines[1:n], 4))
		return n, nil
	}
	n := run(lines, func(line string) bool { return line != "" && !strings.HasPrefix(line, "- ") })
	for i, line := range lines[:n] {
		if unknownLine.MatchString(line) || strings.HasPrefix(line, ":") || strings.HasPrefix(line, "  ") {
			return i, fmt.Errorf("%q: unknown here", line)
		}
	}
	p.Text(strings.Join(lines[:n], "\n"))
	return n, nil
}

// run counts the lines that lines begins with and that are of a kind.
func run(lines []string, is func(string) bool) int {
	for i, line := range lines {
		if !is(line) {
			return i
		}
	}
	return len(lines)
}

// unindent takes n bytes away from the beginning of each line: the marker of the first, the blanks of the others.
func unindent(lines []string, n int) string {
	var out []string
	for _, line := range lines {
		out = append(out, line[n:])
	}
	return strings.Join(out, "\n")
}
