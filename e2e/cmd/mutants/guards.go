// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"path"
	"strings"
)

//go:embed guards.txt
var guardsText string

// guard is a piece of code that protects against a threat.
type guard struct {
	row   string   // of the table in docs/dev/security-evidence.md
	file  string   // from the root of the tree
	tests []string // of the file's package, or of the package named before them: they fail without the guard
	room  string   // where the tests are, from the root
	old   string   // occurs in the file once
	new   string   // its replacement without the guard
}

// parse reads the guards: paragraphs of a head (row, file, tests), and lines that begin with - or +.
func parse(text string) ([]guard, error) {
	var all []guard
	for block := range strings.SplitSeq(text, "\n\n") {
		var g guard
		for line := range strings.Lines(block) {
			switch line = strings.TrimSuffix(line, "\n"); {
			case line == "", line[0] == '#':
			case line[0] == '-':
				g.old += line[1:] + "\n"
			case line[0] == '+':
				g.new += line[1:] + "\n"
			case g.row == "":
				words := strings.Fields(line)
				if len(words) < 3 {
					return nil, fmt.Errorf("%q: want row, file, tests", line)
				}
				g.row, g.file, g.tests, g.room = words[0], words[1], words[2:], path.Dir(words[1])
				if strings.HasPrefix(g.tests[0], "in:") {
					g.room, g.tests = g.tests[0][len("in:"):], g.tests[1:]
				}
			default:
				return nil, fmt.Errorf("%q: a second head in one paragraph", line)
			}
		}
		switch {
		case g.row == "" && g.old == "":
			continue // a comment
		case g.old == "" || g.old == g.new || len(g.tests) == 0:
			return nil, fmt.Errorf("%s %s: nothing to take away, or no test", g.row, g.file)
		}
		all = append(all, g)
	}
	return all, nil
}
