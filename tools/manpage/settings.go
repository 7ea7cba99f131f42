// SPDX-License-Identifier: Apache-2.0

package manpage

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	// "#key: value", and "#  key: value" below a "#key:", and so on.
	settingLine = regexp.MustCompile(`^#((?:  )*)([a-z][A-Za-z]*):(?: (.+))?$`)
	elementLine = regexp.MustCompile(`^#  (- .+)$`)
)

// Settings describes each setting of the shipped configuration: its key from the root (disk.reserve) with its default,
// and the comment above it. A comment followed by an empty line is for readers of the file, and left out.
func Settings(config string) (string, error) {
	var s settings
	for i, line := range strings.Split(strings.TrimRight(config, "\n"), "\n") {
		if err := s.add(line); err != nil {
			return "", fmt.Errorf("settings: line %d: %w", i+1, err)
		}
	}
	s.flush()
	if s.out.Len() == 0 {
		return "", fmt.Errorf("settings: there are none")
	}
	return s.out.String(), nil
}

// settings is the state of reading a configuration.
type settings struct {
	out     strings.Builder
	comment []string // since the last setting or empty line
	groups  []string // the keys without value that nested keys belong to

	// The current setting: it may still get elements, or nested keys.
	term, text string
	elements   []string
}

func (s *settings) add(line string) error {
	switch m := settingLine.FindStringSubmatch(line); {
	case line == "":
		s.comment = nil
	case elementLine.MatchString(line):
		if s.term == "" || len(s.comment) > 0 {
			return fmt.Errorf("%q: an element of nothing", line)
		}
		s.elements = append(s.elements, elementLine.FindStringSubmatch(line)[1])
	case m != nil:
		return s.setting(len(m[1])/2, m[2], m[3])
	case line == "#":
		s.comment = append(s.comment, "")
	case strings.HasPrefix(line, "# "):
		s.comment = append(s.comment, line[2:])
	default:
		return fmt.Errorf("%q: neither a comment nor a setting", line)
	}
	return nil
}

func (s *settings) setting(depth int, key, value string) error {
	s.flush()
	switch {
	case len(s.comment) == 0:
		return fmt.Errorf("%s: no comment says what it is", key)
	case depth > len(s.groups):
		return fmt.Errorf("%s: below no other key", key)
	}
	path := append(s.groups[:depth:depth], key)
	s.groups, key = path[:depth], strings.Join(path, ".")
	if value == "" {
		s.groups = path
	}
	s.term = "`" + strings.TrimSuffix(key+": "+value, ": ") + "`"
	s.text = strings.Join(s.comment, "\n")
	s.comment = nil
	return nil
}

// flush writes the last setting.
func (s *settings) flush() {
	if s.term == "" {
		return
	}
	text := s.text
	if len(s.elements) > 0 {
		text += "\n\n  " + strings.Join(s.elements, "\n  ")
	}
	meaning := strings.TrimSpace(paragraphs(text, "    "))
	s.out.WriteString(s.term + "\n:   " + meaning + "\n\n")
	s.term, s.text, s.elements = "", "", nil
}
