// SPDX-License-Identifier: Apache-2.0

package unit

import "strings"

// setting is a line of a unit.
type setting struct{ section, key, value string }

const space = " \t\n\r"

// parse reads the settings of a unit. A backslash at the end of a line continues it on the next one; a comment in
// between belongs to neither (src/shared/conf-parser.c, config_parse).
func parse(text string) (out []setting) {
	var section, joined string
	add := func() {
		line := strings.Trim(joined, space)
		if name, is := strings.CutPrefix(line, "["); is {
			section = strings.TrimSuffix(name, "]")
		} else if key, value, is := strings.Cut(line, "="); is {
			out = append(out, setting{section, strings.Trim(key, space), strings.Trim(value, space)})
		}
		joined = ""
	}
	for line := range strings.Lines(text) {
		if begin := strings.TrimLeft(line, space); strings.HasPrefix(begin, "#") || strings.HasPrefix(begin, ";") {
			continue
		}
		if joined += strings.TrimRight(line, breaks); isOpen(joined) {
			joined = joined[:len(joined)-1] + " "
			continue
		}
		add()
	}
	add() // if the last line is continued
	return out
}

// isOpen reports whether a line is continued: it ends with an unescaped backslash.
func isOpen(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}
